"""Tokens per second from raw text, beside the tokenizer alone, a column of tokens, and others.

    python bench/sequences/text.py --repeats 5

4,000 documents of words by Zipf's law, log-normal, median 245 words, 12 MB, in four files with row
groups of 250, zstd. Tokenizers: a byte-level BPE of 16,000 tokens of the package tokenizers,
trained on a tenth, and the same ranks in tiktoken. Sequences have 2,048 tokens, batches 32. Sides
take turns, each in a process of its own, on two threads. A tokenizer is loaded anew for each pass,
because it remembers words. Texts of the tokenizer alone are in memory, in batches of 1,000.

Others tokenise as their documents say, with the first tokenizer: `map` of datasets on batches;
torchtitan's text data set, document by document in every epoch, in the process that trains;
LitData's `optimize`, whose workers take files; and the pool of Megatron-LM's preprocess_data.py,
which is in no package, before the builder of megatron-core. Two workers each, where they have any.
Those that are not installed are named.

Seconds on the clock count what others do on the machine too; processor seconds, those of workers
among them, do not.
"""

from __future__ import annotations

import argparse
import datetime
import multiprocessing
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from torchparquet import Pack, ParquetDataset

_DATA = Path(__file__).resolve().parents[1] / "data" / "texts"
_FILES, _DOCUMENTS, _ROW_GROUP, _WORDS, _VOCABULARY = 4, 1_000, 250, 20_000, 16_000
_LENGTH, _BATCH, _THREADS = 2048, 32, 2
_BATCH_OF_TEXTS = 1_000
_PATTERN = r" ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+"


def _texts(rng: np.random.Generator) -> list[str]:
    letters = list("etaoinshrdlucmfwypvbgkjqxz")
    weights = 1 / np.arange(1, 27)
    words = [
        "".join(rng.choice(letters, size=rng.integers(2, 11), p=weights / weights.sum()))
        for _ in range(_WORDS)
    ]
    ranks = 1 / np.arange(1, _WORDS + 1)
    lengths = np.clip(rng.lognormal(5.5, 1, _FILES * _DOCUMENTS).astype(int), 1, 20_000)
    drawn = rng.choice(_WORDS, size=lengths.sum(), p=ranks / ranks.sum())
    ends = np.cumsum(lengths).tolist()
    return [
        " ".join(words[word] for word in drawn[end - length : end])
        for length, end in zip(lengths.tolist(), ends, strict=True)
    ]


def _write() -> None:
    """Write texts, a tokenizer, and the tokens that it makes."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    if (_DATA / "tokenizer.json").exists():
        return
    (_DATA / "texts").mkdir(parents=True, exist_ok=True)
    (_DATA / "tokens").mkdir(exist_ok=True)
    texts = _texts(np.random.default_rng(0))
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=_VOCABULARY,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts[::10], trainer)
    for file in range(_FILES):
        part = texts[file * _DOCUMENTS : (file + 1) * _DOCUMENTS]
        tokens = [one.ids for one in tokenizer.encode_batch_fast(part, add_special_tokens=False)]
        tables = {
            "texts": pa.table({"text": part}),
            "tokens": pa.table({"text": pa.array(tokens, pa.list_(pa.int32()))}),
        }
        for name, table in tables.items():
            path = _DATA / name / f"{file}.parquet"
            pq.write_table(table, path, row_group_size=_ROW_GROUP, compression="zstd")
    tokenizer.save(str(_DATA / "tokenizer.json"))


def _hugging_face() -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(_DATA / "tokenizer.json"))


def _tiktoken() -> Any:
    import tiktoken
    from tokenizers import pre_tokenizers

    # The letters of a byte-level BPE stand for bytes.
    letters = sorted(pre_tokenizers.ByteLevel.alphabet(), key=ord)
    plain = [letter for letter in letters if ord(letter) < 256]
    others = [byte for byte in range(256) if chr(byte) not in plain]
    byte_of = {letter: ord(letter) for letter in plain}
    byte_of |= {chr(256 + number): byte for number, byte in enumerate(others)}
    vocabulary = _hugging_face().get_vocab()
    ranks = {bytes(byte_of[c] for c in token): rank for token, rank in vocabulary.items()}
    return tiktoken.Encoding(
        "bench", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={"<end>": len(ranks)}
    )


_MADE: dict[str, Callable[[], Any]] = {"tokenizers": _hugging_face, "tiktoken": _tiktoken}
Timed = tuple[float, float, int]


def _timed(work: Callable[[], int]) -> Timed:
    """Return seconds on the clock and of processors, and the tokens."""
    wall, processors = time.perf_counter(), sum(os.times()[:4])
    num_tokens = work()
    return time.perf_counter() - wall, sum(os.times()[:4]) - processors, num_tokens


def _alone(name: str) -> Timed:
    tokenizer = _MADE[name]()
    texts = pq.read_table(_DATA / "texts")["text"].to_pylist()
    batches = [texts[at : at + _BATCH_OF_TEXTS] for at in range(0, len(texts), _BATCH_OF_TEXTS)]

    def work() -> int:
        if name == "tiktoken":
            made = [tokenizer.encode_ordinary_batch(one, num_threads=_THREADS) for one in batches]
            return sum(len(tokens) for batch in made for tokens in batch)
        return sum(
            len(one)
            for batch in batches
            for one in tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        )

    return _timed(work)


def _dataset(folder: str, tokenizer: Any, cache: Path | None) -> Any:
    pack = Pack("text", _LENGTH, boundaries="none", tokenizer=tokenizer, token_cache=cache)
    return ParquetDataset(_DATA / folder, batch_size=_BATCH, pack=pack, num_threads=_THREADS)


def _first(name: str) -> Timed:
    tokenizer, cache = _MADE[name](), _DATA / f"cache_{name}"
    shutil.rmtree(cache, ignore_errors=True)
    _dataset("texts/0.parquet", tokenizer, None)  # loads libraries

    def work() -> int:
        return int(_dataset("texts", tokenizer, cache).manifest.packed.num_tokens.sum())

    return _timed(work)


def _again() -> Timed:
    tokenizer, cache = _hugging_face(), _DATA / "cache_again"
    _dataset("texts", tokenizer, cache)
    return _timed(lambda: int(_dataset("texts", tokenizer, cache).manifest.packed.num_tokens.sum()))


def _epochs(folder: str) -> Timed:
    tokenizer = _hugging_face() if folder == "texts" else None
    dataset = _dataset(folder, tokenizer, _DATA / "cache_again" if tokenizer else None)

    def work() -> int:
        num_tokens = 0
        for _ in range(10):
            for batch in dataset:
                batch["text"].sum()
                num_tokens += batch["text"].numel()
        return num_tokens

    work()
    return _timed(work)


def _datasets_map() -> Timed:
    """Tokenise and pack by map, as recipes for training do."""
    import datasets

    tokenizer = _hugging_face()

    def packed(rows: dict[str, list[str]]) -> dict[str, list[Any]]:
        made = tokenizer.encode_batch_fast(rows["text"], add_special_tokens=False)
        tokens = [token for one in made for token in one.ids]
        ends = range(0, len(tokens) // _LENGTH * _LENGTH, _LENGTH)
        return {"tokens": [tokens[begin : begin + _LENGTH] for begin in ends]}

    data = datasets.load_dataset("parquet", data_dir=str(_DATA / "texts"), split="train")

    def work() -> int:
        made = data.map(packed, batched=True, remove_columns="text", load_from_cache_file=False)
        return len(made) * _LENGTH

    return _timed(work)


def _torchtitan() -> Timed:
    """Read an epoch of torchtitan's text data set."""
    import datasets
    from torch.utils.data import DataLoader
    from torchtitan.hf_datasets import DatasetConfig
    from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataset

    tokenizer = _hugging_face()

    class Encoder:
        def encode(self, text: str, **_: bool) -> list[int]:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
            return ids

    def load(path: str) -> Any:
        return datasets.load_dataset("parquet", data_dir=path, split="train")

    DATASETS["texts"] = DatasetConfig(str(_DATA / "texts"), load, lambda row: row["text"])
    sequences: Any = HuggingFaceTextDataset("texts", None, Encoder(), _LENGTH)
    return _timed(lambda: _read(DataLoader(sequences, _BATCH), lambda batch: batch[0]["input"]))


def _read(batches: Any, tokens_of: Callable[[Any], Any]) -> int:
    """Read all batches, and return how many tokens they have."""
    num_tokens = 0
    for batch in batches:
        tokens = tokens_of(batch)
        tokens.sum()
        num_tokens += tokens.numel()
    return num_tokens


def _tokens_of_file(path: str) -> Any:
    import torch

    tokenizer = _hugging_face()
    for batch in pq.ParquetFile(path).iter_batches(columns=["text"]):
        for text in batch["text"].to_pylist():
            yield torch.tensor(tokenizer.encode(text, add_special_tokens=False).ids)


def _litdata(*, epochs: int) -> Timed:
    """Optimise files into LitData's format, or read epochs of it."""
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader, optimize

    to = _DATA / "litdata"

    def optimized() -> int:
        shutil.rmtree(to, ignore_errors=True)
        optimize(
            fn=_tokens_of_file,
            inputs=[str(path) for path in sorted((_DATA / "texts").iterdir())],
            output_dir=str(to),
            chunk_size=_LENGTH * 2_000,
            item_loader=TokensLoader(block_size=_LENGTH),
            num_workers=_THREADS,
        )
        return len(StreamingDataset(str(to), item_loader=TokensLoader(_LENGTH))) * _LENGTH

    if not epochs:
        return _timed(optimized)
    optimized()
    sequences = StreamingDataset(str(to), item_loader=TokensLoader(_LENGTH))
    loader = StreamingDataLoader(sequences, batch_size=_BATCH)
    _read(loader, lambda batch: batch)
    return _timed(lambda: sum(_read(loader, lambda batch: batch) for _ in range(epochs)))


class _MegatronEncoder:
    """The tokenizer that each process of the pool of preprocess_data.py has."""

    tokenizer: Any = None

    @classmethod
    def begin(cls) -> None:
        cls.tokenizer = _hugging_face()

    @classmethod
    def encode(cls, text: str) -> list[int]:
        ids: list[int] = cls.tokenizer.encode(text, add_special_tokens=False).ids
        return ids


def _megatron(*, epochs: int) -> Timed:
    """Write Megatron's format, or read epochs of its GPT data set."""
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
    from megatron.core.datasets.utils import Split
    from torch.utils.data import DataLoader

    prefix = str(_DATA / "megatron")

    def preprocessed() -> int:
        builder, num_tokens = IndexedDatasetBuilder(f"{prefix}.bin", np.uint16), 0
        texts = pq.read_table(_DATA / "texts")["text"].to_pylist()
        with multiprocessing.Pool(_THREADS, _MegatronEncoder.begin) as pool:
            for tokens in pool.imap(_MegatronEncoder.encode, texts, 32):
                builder.add_document(tokens, [len(tokens)])
                num_tokens += len(tokens)
            pool.close()
            pool.join()
        builder.finalize(f"{prefix}.idx")
        return num_tokens

    if not epochs:
        return _timed(preprocessed)
    num_tokens = preprocessed()

    class Tokenizer:
        vocab_size, eod, pad, unique_identifiers = _VOCABULARY, 0, 0, {"class": "bench"}

    config = GPTDatasetConfig(
        random_seed=0,
        sequence_length=_LENGTH,
        path_to_cache=str(_DATA / "megatron_cache"),
        tokenizer=Tokenizer(),
        split="1",
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
    )
    documents = IndexedDataset(prefix)
    every = np.arange(len(documents), dtype=np.int32)
    most = num_tokens // _LENGTH
    sequences = GPTDataset(documents, prefix, every, most, Split.train, config)
    loader = DataLoader(sequences, _BATCH)
    _read(loader, lambda batch: batch["tokens"])
    return _timed(lambda: sum(_read(loader, lambda batch: batch["tokens"]) for _ in range(epochs)))


_SIDES: dict[str, Callable[[], Timed]] = {
    "tokenizers alone": lambda: _alone("tokenizers"),
    "first pass, tokenizers": lambda: _first("tokenizers"),
    "tiktoken alone": lambda: _alone("tiktoken"),
    "first pass, tiktoken": lambda: _first("tiktoken"),
    "datasets, map and pack": _datasets_map,
    "LitData, optimize": lambda: _litdata(epochs=0),
    "the way of Megatron, preprocess": lambda: _megatron(epochs=0),
    "each epoch of torchtitan's text data set": _torchtitan,
    "a data set of tokens that are there": _again,
    "later epochs": lambda: _epochs("texts"),
    "epochs of a column of tokens": lambda: _epochs("tokens"),
    "LitData, later epochs": lambda: _litdata(epochs=10),
    "Megatron-Core, later epochs": lambda: _megatron(epochs=10),
}


def _run(name: str) -> Timed | None:
    """Return what a process of its own measures; None if the side lacks a package."""
    threads = str(_THREADS)
    done = subprocess.run(
        [sys.executable, __file__, "--side", name],
        capture_output=True,
        text=True,
        env=os.environ | {"RAYON_NUM_THREADS": threads, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        if "ModuleNotFoundError" in done.stderr:
            return None
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    wall, processors, num_tokens = done.stdout.split()[-3:]
    return float(wall), float(processors), int(num_tokens)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--side", choices=_SIDES)
    given = parser.parse_args()
    if given.side:
        print(*_SIDES[given.side]())
        return
    _write()
    found: dict[str, list[Timed]] = {name: [] for name in _SIDES}
    for _ in range(given.repeats):
        for name in _SIDES:
            timed = _run(name)
            if timed is not None:
                found[name].append(timed)
    print(f"{platform.machine()}, {datetime.date.today()}, {_THREADS} threads\n")
    print("| side | million tokens a second | of processor time |\n| --- | ---: | ---: |")
    for name, passes in found.items():
        if not passes:
            print(f"| {name} | not installed | |")
            continue
        rates = [statistics.median(one[2] / one[by] / 1e6 for one in passes) for by in (0, 1)]
        print(f"| {name} | {rates[0]:.2f} | {rates[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
