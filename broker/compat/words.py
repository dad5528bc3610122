"""Words of a directive line: quotes, escapes and comments as batch systems read them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """The words of a line. `problem` says why it cannot be read; `cut` is the rest of a word that
    an unquoted `#` turned into a comment."""

    words: tuple[str, ...]
    problem: str = ""
    cut: str = ""


def names(text: str) -> frozenset[str]:
    """The words of `text`, as a set."""
    return frozenset(text.split())


def split_words(text: str) -> Split:
    """`text` in words: blanks part them unless quoted by " or ' or escaped by a backslash; an
    unquoted # begins a comment, also in the middle of a word."""
    words: list[str] = []
    word: list[str] | None = None
    quote, position = "", 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            word = _longer([] if word is None else word, text[position])
            position += 1
        elif quote:
            if character == quote:
                quote = ""
            elif word is not None:
                word.append(character)
        elif character in "\"'":
            quote = character
            word = [] if word is None else word
        elif character == "#":
            return Split(_done(words, word), "", "" if word is None else text[position - 1 :])
        elif character.isspace():
            words, word = list(_done(words, word)), None
        else:
            word = _longer([] if word is None else word, character)
    problem = f"the quote {quote} is never closed" if quote else ""
    return Split(_done(words, word), problem)


def _longer(word: list[str], character: str) -> list[str]:
    word.append(character)
    return word


def _done(words: list[str], word: list[str] | None) -> tuple[str, ...]:
    return (*words, "".join(word)) if word is not None else tuple(words)
