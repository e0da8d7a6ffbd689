"""The service surface: request and reply for programs in any language that want an answer at once.

A program sends JSON to ``ap.in.<principal>.<type>`` and is told where its event is stored, or which field was wrong.
The principal is a token of the subject, because the server enforces subjects. ``check`` (a pure function: is this a
good event?), ``wire`` (requests and replies as structs), ``app`` (the FastStream application), ``asyncapi`` (its
document), ``schemas`` (JSON Schemas of every event and decision).

The ingress decides nothing about budgets, members or GPUs: the core does, when it reads the event. It publishes only
what a principal asked for, declares no stream, and reads nothing from the log but the record of a repeated id. Programs
that need no answer but the stored sequence may as well publish to ``ap.ev.<principal>.<type>`` themselves.

Importing this package is light; only ``app`` and ``asyncapi`` load FastStream.
"""
