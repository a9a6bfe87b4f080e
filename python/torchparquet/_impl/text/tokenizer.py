"""Tokenizers of several libraries behind one interface: batches of texts become lists of tokens."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import re
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from torchparquet._impl.checks import shown
from torchparquet.errors import one_line

TOKENS = pa.schema({"tokens": pa.list_(pa.int32())})
CHAT_TOKENS = TOKENS.append(pa.field("loss", pa.list_(pa.bool_())))
_FILE = "tokenizer.json"
# As transformers looks for it.
_GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
_TAKEN = (
    "a tokenizer of Hugging Face (an object, a tokenizer.json, its folder, or a name in the local "
    "cache), an Encoding of tiktoken, or a function from a list of str to lists of int"
)


class Tokenizer(ABC):
    """Makes tokens of texts, or of conversations.

    One thread at a time calls `make`; another one may call `tokens` meanwhile.
    """

    schema = TOKENS

    @property
    @abstractmethod
    def key(self) -> str:
        """A text that differs for tokenizers that make other tokens."""

    @abstractmethod
    def number_of(self, token: str) -> int | None:
        """Return the number of a token; None if it is unknown."""

    @abstractmethod
    def make(self, texts: list[Any]) -> Any:
        """Return what the library makes of each text.

        A conversation is a list of dicts with the role and the content of a message.
        """

    @abstractmethod
    def tokens(self, made: Any) -> pa.RecordBatch:
        """Return the tokens of each text, with `schema`, of what `make` has returned."""


def tokenizer_of(
    given: Any, *, add_special_tokens: bool, chat: bool, num_threads: int
) -> Tokenizer:
    """Return what makes tokens, of any form that users give."""
    if chat:
        return _chat_tokenizer_of(given)
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


def _chat_tokenizer_of(given: Any) -> Tokenizer:
    if isinstance(given, str | os.PathLike):
        try:
            from transformers import AutoTokenizer
        except ImportError as error:
            raise ImportError(
                f"tokenizer={os.fspath(given)!r} with chat=True needs a package: "
                "pip install transformers"
            ) from error
        given = AutoTokenizer.from_pretrained(os.fspath(given), local_files_only=True)
    names = {kind.__name__ for kind in type(given).__mro__}
    if "PreTrainedTokenizerBase" in names and hasattr(given, "backend_tokenizer"):
        return _Chat(given)
    if not callable(given) or names & {"Tokenizer", "PreTrainedTokenizerBase", "Encoding"}:
        raise TypeError(
            "chat=True needs a fast tokenizer of transformers, which has a chat template, its "
            "folder, a name in the local cache, or a function from a list of conversations to a "
            f"pair of tokens and loss for each; got {shown(given)}"
        )
    return _ChatFunction(given)


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

    def make(self, texts: list[Any]) -> Any:
        return self._tokenizer.encode_batch_fast(texts, add_special_tokens=self._add)

    def tokens(self, made: Any) -> pa.RecordBatch:
        return _tokens(_joined([array("i", one.ids) for one in made]))


class _Chat(Tokenizer):
    """A copy of a tokenizer of transformers, which applies its chat template."""

    schema = CHAT_TOKENS

    def __init__(self, given: Any) -> None:
        self._tokenizer = copy.deepcopy(given)
        backend = self._tokenizer.backend_tokenizer
        backend.encode_special_tokens = given.split_special_tokens  # as each call sets it
        self._tokens = _HuggingFace(backend, False)
        if not given.chat_template:
            raise ValueError("chat=True needs a chat template: set tokenizer.chat_template")
        self._template: str = given.get_chat_template()
        if not _GENERATION.search(self._template):
            raise ValueError(
                "the chat template does not mark which tokens have a loss: in "
                "tokenizer.chat_template put {% generation %} before what the assistant says, and "
                "{% endgeneration %} after its last token; or give a function from a list of "
                "conversations to a pair of tokens and loss for each"
            )

    @property
    def key(self) -> str:
        special = json.dumps(self._tokenizer.special_tokens_map, sort_keys=True, default=str)
        return _digest("chat", self._tokens.key, self._template, special)

    def number_of(self, token: str) -> int | None:
        return self._tokens.number_of(token)

    def make(self, texts: list[Any]) -> Any:
        # The tokenizer refuses a conversation without messages: it has no tokens.
        made: list[tuple[Any, Any]] = [((), ())] * len(texts)
        full = [row for row, messages in enumerate(texts) if messages]
        if full:
            found = self._tokenizer.apply_chat_template(
                [texts[row] for row in full],
                return_assistant_tokens_mask=True,
                tokenizer_kwargs={"verbose": False, "return_attention_mask": False},
            )
            pairs = zip(found["input_ids"], found["assistant_masks"], strict=True)
            for row, pair in zip(full, pairs, strict=True):
                made[row] = pair
        return made

    def tokens(self, made: Any) -> pa.RecordBatch:
        return _with_loss(made)


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

    def make(self, texts: list[Any]) -> Any:
        def tokens_of(text: str) -> Any:
            return self._encoding.encode_to_numpy(text, disallowed_special=())

        with ThreadPoolExecutor(self._num_threads) as threads:
            return list(threads.map(tokens_of, texts))

    def tokens(self, made: Any) -> pa.RecordBatch:
        return _tokens(_joined(made))


class _Function(Tokenizer):
    """A user's function, whose attribute `fingerprint` names what it makes."""

    def __init__(self, function: Callable[[list[Any]], Sequence[Any]]) -> None:
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
        return _digest(*("chat" for _ in self.schema.names[1:]), "function", self._fingerprint)

    def number_of(self, token: str) -> int | None:
        raise ValueError(
            f"separator must be a number where the tokenizer is a function; got {token!r}"
        )

    def make(self, texts: list[Any]) -> Any:
        given: Any = self._function(texts)  # whatever the user returns
        made = list(given) if isinstance(given, Iterable) else None
        if made is None or len(made) != len(texts):
            returned = shown(given) if made is None else f"{len(made)} lists"
            raise ValueError(
                "the tokenizer must return a list of tokens for each text; it was given "
                f"{len(texts)} texts and returned {returned}"
            )
        return made

    def tokens(self, made: Any) -> pa.RecordBatch:
        return _tokens(_of_ints(made))


class _ChatFunction(_Function):
    """A user's function of conversations."""

    schema = CHAT_TOKENS

    def tokens(self, made: Any) -> pa.RecordBatch:
        return _with_loss(made)


def _of_ints(made: Sequence[Any]) -> pa.ListArray:
    """Return lists of ints that a user's function has made."""
    try:
        # Of bytes themselves, `array` would make a token of four; it takes no bool of NumPy's.
        lists = (one.tolist() if hasattr(one, "tolist") else iter(one) for one in made)
        tokens = _joined([array("i", one) for one in lists])
        if len(tokens.values) and (least := int(tokens.values.to_numpy().min())) < 0:
            raise OverflowError(f"got {least}")
    except (OverflowError, TypeError) as error:
        raise ValueError(
            "the tokenizer must return lists of ints below 2**31 and not negative: "
            f"{one_line(error)}"
        ) from error
    return tokens


def _with_loss(made: Sequence[Any]) -> pa.RecordBatch:
    """Return pairs of tokens, and of whether these have a loss."""
    try:
        tokens, loss = zip(*made, strict=True) if made else ((), ())
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"the tokenizer must return a pair of tokens and loss for each: {one_line(error)}"
        ) from error
    both = _of_ints(tokens), _of_ints(loss)
    marks = both[1].values.to_numpy()
    if not both[0].offsets.equals(both[1].offsets) or (len(marks) and marks.max() > 1):
        raise ValueError(
            "the tokenizer must return as many values of loss as tokens, each 0 or 1, for each "
            "conversation"
        )
    marked = pa.ListArray.from_arrays(both[1].offsets, pa.array(marks.astype(bool)))
    return pa.record_batch([both[0], marked], CHAT_TOKENS)


def _tokens(tokens: pa.ListArray) -> pa.RecordBatch:
    return pa.record_batch([tokens], TOKENS)


def _joined(made: Sequence[Any]) -> pa.ListArray:
    """Return lists of buffers of 32 bits; Arrow takes 10 times as long for lists of Python's."""
    ends = np.cumsum([0, *map(len, made)], dtype=np.int32)
    values = np.concatenate([np.zeros(0, np.int32), *(np.frombuffer(o, np.int32) for o in made)])
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(values))
