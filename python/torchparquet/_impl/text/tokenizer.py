"""Tokenizers of several libraries behind one interface: batches of texts become lists of tokens."""

from __future__ import annotations

import hashlib
import json
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.checks import shown
from torchparquet.errors import one_line

TOKENS = pa.list_(pa.int32())
_FILE = "tokenizer.json"
_TAKEN = (
    "a tokenizer of Hugging Face (an object, a tokenizer.json, its folder, or a name in the local "
    "cache), an Encoding of tiktoken, or a function from a list of str to lists of int"
)


class Tokenizer(ABC):
    """Makes tokens of texts. One thread calls it at a time."""

    @property
    @abstractmethod
    def key(self) -> str:
        """A text that differs for tokenizers that make other tokens."""

    @abstractmethod
    def number_of(self, token: str) -> int | None:
        """Return the number of a token; None if it is unknown."""

    @abstractmethod
    def encode(self, texts: list[str]) -> pa.ListArray:
        """Return the tokens of each text, int32."""


def tokenizer_of(given: Any, *, add_special_tokens: bool, num_threads: int) -> Tokenizer:
    """Return what makes tokens, of any form that users give."""
    if isinstance(given, str | os.PathLike):
        return _HuggingFace(_loaded(os.fspath(given)), add_special_tokens)
    # By package and class; who gives an object has imported its library.
    for kind in type(given).__mro__:
        match kind.__module__.partition(".")[0], kind.__name__:
            case "tokenizers", "Tokenizer":
                return _HuggingFace(given, add_special_tokens)
            case "transformers", "PreTrainedTokenizerBase":
                if (fast := getattr(given, "backend_tokenizer", None)) is not None:
                    return _HuggingFace(fast, add_special_tokens)
                raise ValueError(
                    "tokenizer must be a fast one of transformers; for this one give a function "
                    "such as lambda texts: tokenizer(texts, add_special_tokens=False)"
                    f'["input_ids"], with a fingerprint: {type(given).__name__}'
                )
    if add_special_tokens:
        raise ValueError("add_special_tokens is for tokenizers of Hugging Face")
    if type(given).__module__.partition(".")[0] == "tiktoken":
        return _Tiktoken(given, num_threads)
    if not callable(given):
        raise TypeError(f"tokenizer must be {_TAKEN}; got {shown(given)}")
    return _Function(given)


def _digest(*parts: str | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _loaded(path: str) -> Any:
    """Return the tokenizer of Hugging Face that a file, a folder or a name stands for."""
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(
            f"tokenizer={path!r} needs a package: pip install 'torchparquet[text]'"
        ) from error
    place = Path(path)
    file = place / _FILE if place.is_dir() else place
    if not file.is_file() and not place.exists():
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        try:
            found = try_to_load_from_cache(path, _FILE)
        except HFValidationError:
            found = None
        if not isinstance(found, str):
            raise FileNotFoundError(
                f"the tokenizer is no file, no folder with a {_FILE}, and not in the local cache "
                f"of Hugging Face, which `hf download NAME {_FILE}` fills: {path!r}"
            )
        file = Path(found)
    try:
        return tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises no narrower class
        raise ValueError(f"the tokenizer cannot be read: {str(file)!r}: {error}") from error


class _HuggingFace(Tokenizer):
    """A copy of a `tokenizers.Tokenizer` that neither cuts nor pads texts."""

    def __init__(self, given: Any, add_special_tokens: bool) -> None:
        try:
            self._tokenizer = type(given).from_str(given.to_str())
        except Exception as error:  # the library raises no narrower class
            raise ValueError(
                "the tokenizer has parts in Python and cannot be copied; give a function that "
                f"calls it, with a fingerprint: {one_line(error)}"
            ) from error
        if dropout := getattr(self._tokenizer.model, "dropout", None):
            raise ValueError(
                "the tokenizer must make the same tokens of a text each time, and its BPE has "
                f"dropout={dropout}: set tokenizer.model.dropout = None"
            )
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Copies do not have it.
        self._tokenizer.encode_special_tokens = given.encode_special_tokens
        self._add = add_special_tokens

    @property
    def key(self) -> str:
        flags = [self._add, self._tokenizer.encode_special_tokens]
        return _digest("tokenizers", json.dumps(flags), self._tokenizer.to_str())

    def number_of(self, token: str) -> int | None:
        found: int | None = self._tokenizer.token_to_id(token)
        return found

    def encode(self, texts: list[str]) -> pa.ListArray:
        made = self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._add)
        return _joined([array("i", one.ids) for one in made])


class _Tiktoken(Tokenizer):
    """An encoding of tiktoken, to which special tokens within texts are plain text."""

    def __init__(self, encoding: Any, num_threads: int) -> None:
        self._encoding = encoding
        self._num_threads = num_threads

    @property
    def key(self) -> str:
        encoding = self._encoding
        ranks = sorted((rank, token.hex()) for token, rank in encoding._mergeable_ranks.items())
        told = [encoding.name, encoding._pat_str, ranks, sorted(encoding._special_tokens.items())]
        return _digest("tiktoken", json.dumps(told))

    def number_of(self, token: str) -> int | None:
        try:
            found: int = self._encoding.encode_single_token(token)
        except KeyError:
            return None
        return found

    def encode(self, texts: list[str]) -> pa.ListArray:
        def tokens_of(text: str) -> Any:
            return self._encoding.encode_to_numpy(text, disallowed_special=())

        with ThreadPoolExecutor(self._num_threads) as threads:
            made = list(threads.map(tokens_of, texts))
        return _joined(made)


class _Function(Tokenizer):
    """A user's function, whose attribute `fingerprint` names what it makes."""

    def __init__(self, function: Callable[[list[str]], Sequence[Sequence[int]]]) -> None:
        self._function = function
        fingerprint = getattr(function, "fingerprint", None)
        if not isinstance(fingerprint, str) or not fingerprint:
            raise ValueError(
                "a function as tokenizer needs an attribute fingerprint, a str that changes when "
                'its tokens do, such as tokenize.fingerprint = "words v1"; got '
                f"{shown(function)}"
            )
        self._fingerprint = fingerprint

    @property
    def key(self) -> str:
        return _digest("function", self._fingerprint)

    def number_of(self, token: str) -> int | None:
        raise ValueError(
            f"separator must be a number where the tokenizer is a function; got {token!r}"
        )

    def encode(self, texts: list[str]) -> pa.ListArray:
        made = list(self._function(texts))
        if len(made) != len(texts):
            raise ValueError(
                "the tokenizer must return a list of tokens for each text; it was given "
                f"{len(texts)} texts and returned {len(made)} lists"
            )
        try:
            # Of bytes themselves, `array` would make a token of four.
            return _joined([array("i", iter(one)) for one in made])
        except (OverflowError, TypeError) as error:
            raise ValueError(
                f"the tokenizer must return lists of ints below 2**31: {one_line(error)}"
            ) from error


def _joined(made: Sequence[Any]) -> pa.ListArray:
    """Return lists of buffers of 32 bits; Arrow takes 10 times as long for lists of Python's."""
    ends = np.cumsum([0, *map(len, made)], dtype=np.int32)
    values = np.concatenate([np.zeros(0, np.int32), *(np.frombuffer(o, np.int32) for o in made)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
