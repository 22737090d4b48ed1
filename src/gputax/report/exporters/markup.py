"""Build HTML so that nothing can be forgotten: every text is escaped, except what is markup already."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "link", "br", "hr"})


class Markup(str):
    """A piece of HTML that was built here."""

    __slots__ = ()


def element(name: str, /, *children: str | Markup, **attributes: str | bool) -> Markup:
    """Return an element; `class_` is written as class, `aria_label` as aria-label, False leaves an attribute out."""
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(value, quote=True)}"')
        for key, value in attributes.items()
        if value is not False
    )
    if name in VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{joined(*children)}</{name}>")


def joined(*children: str | Markup) -> Markup:
    """Return the children one after another, texts escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child, quote=False) for child in children))
