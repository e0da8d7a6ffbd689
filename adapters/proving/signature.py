"""Signatures of documents by OpenSSH: the key a person has already, checked by a program that everybody has.

``ssh-keygen -Y sign`` and ``-Y verify`` (OpenSSH 8.1 or newer) rather than a library: no dependency, keys in agents and on hardware
tokens work, and whoever gets ``FILE`` and ``FILE.sig`` can check them without this program. The namespace keeps a signature made
for anything else from counting here. The signature is beside the file, over its exact bytes. Nothing here knows a private key:
it names the file, ssh-keygen reads it.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

NAMESPACE = "apportion-verify"
IDENTITY = "signer"
TIMEOUT_S = 120  # a person may have to touch a token or type a passphrase


class SignatureInvalid(Exception):
    """It is not signed, not by that key, or not with these bytes; the message says which."""


class CannotSign(Exception):
    """ssh-keygen is missing, or the key cannot be used; the message says why."""


def signature_of(path: Path) -> Path:
    """Return where the signature of a file stands."""
    return path.with_name(path.name + ".sig")


def fingerprint(key: Path) -> str:
    """Return the fingerprint of a key, private or public, as OpenSSH writes it. Raises ``CannotSign``."""
    done = _run("-l", "-f", str(key))
    words = done.stdout.decode(errors="replace").split()
    if done.returncode or len(words) < 2:
        raise CannotSign(f"{key} is no key that ssh-keygen reads: {_said(done)}")
    return words[1]


def sign(path: Path, key: Path) -> Path:
    """Sign a file; return where the signature is. Raises ``CannotSign``."""
    made = signature_of(path)
    made.unlink(missing_ok=True)  # ssh-keygen would ask whether to overwrite it
    done = _run("-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(path))
    if done.returncode or not made.is_file():
        raise CannotSign(f"{path} could not be signed with {key}: {_said(done)}")
    return made


def check(path: Path, content: bytes, key: Path | None) -> str:
    """Return the fingerprint of the key that signed ``content``, kept beside ``path``; with ``key`` it must be that one.

    Raises ``SignatureInvalid``, ``CannotSign`` when ssh-keygen or the key cannot be used.
    """
    made = signature_of(path)
    if not made.is_file():
        raise SignatureInvalid(f"{made} is not there: the document is not signed, or its signature was not handed on")
    whole = _run("-Y", "check-novalidate", "-n", NAMESPACE, "-s", str(made), stdin=content)
    if whole.returncode:
        raise SignatureInvalid(f"{path} is not what was signed: it or {made.name} was changed ({_said(whole)})")
    by = next((word for word in whole.stdout.decode(errors="replace").split() if word.startswith("SHA256:")), "")
    if key is None:
        return by
    try:
        public = " ".join(_public(key).split()[:2])
    except OSError as error:
        raise CannotSign(f"{key} cannot be read: {error.strerror}") from None
    with tempfile.NamedTemporaryFile("w", prefix="apportion-signers-", encoding="utf-8") as signers:
        signers.write(f"{IDENTITY} {public}\n")
        signers.flush()
        done = _run("-Y", "verify", "-f", signers.name, "-I", IDENTITY, "-n", NAMESPACE, "-s", str(made), stdin=content)
    if done.returncode:
        raise SignatureInvalid(f"{path} was signed by {by}, not by {key} ({fingerprint(key)})")
    return by


def _public(key: Path) -> str:
    """Return the public key of a file that may hold either half."""
    text = key.read_text(encoding="utf-8", errors="replace")
    if "PRIVATE KEY" not in text:
        return text
    done = _run("-y", "-f", str(key))
    if done.returncode:
        raise CannotSign(f"{key} is a private key that cannot be read; name its public half, {key}.pub: {_said(done)}")
    return done.stdout.decode(errors="replace")


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    text = (done.stderr or done.stdout).decode(errors="replace").strip()
    return text.splitlines()[-1] if text else f"ssh-keygen ended with {done.returncode}"


def _run(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            ["ssh-keygen", *arguments], input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True, check=False, timeout=TIMEOUT_S,
        )  # fmt: skip
    except FileNotFoundError:
        raise CannotSign("ssh-keygen is not installed here; install OpenSSH's client (8.1 or newer)") from None
    except subprocess.TimeoutExpired:
        raise CannotSign(f"ssh-keygen gave no answer within {TIMEOUT_S} s: a passphrase or a token is awaited") from None
