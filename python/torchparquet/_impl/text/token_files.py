"""Token files: one for each part of the texts, written whole, each by one of the processes."""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from torchparquet._impl.text.text_reading import Portion, TextReader
from torchparquet._impl.text.tokenizer import TOKENS, Tokenizer
from torchparquet.errors import naming

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_TOKENS = TOKENS.names[0]
_DRAFT = ".draft"
_POLL_SECONDS, _LOG_SECONDS, _WARN_SECONDS = 0.05, 5.0, 60.0
# Portions that are tokenised or wait for it while others are read and written.
_PORTIONS_AHEAD = 2
_logger = logging.getLogger("torchparquet")


def encoded(
    tokenizer: Tokenizer, portions: Iterator[Portion]
) -> Generator[tuple[pa.RecordBatch, bool], None, None]:
    """Yield tokens of rows of one row group each, and whether they end it.

    Portions are tokenised while the caller reads others and works with the tokens.
    The threads of a tokenizer of Hugging Face go on with a portion while the lists of ints that it
    has made of the last one become arrays, which takes one thread 40 ns a token.
    """
    waiting: deque[tuple[Future[Future[pa.RecordBatch]], Portion]] = deque()

    def made(portion: Portion) -> Future[pa.RecordBatch]:
        # The result of the library takes 100 bytes a token or more, so nobody else holds it.
        return converts.submit(tokenizer.tokens, tokenizer.make(portion.texts))

    def taken() -> Iterator[tuple[pa.RecordBatch, bool]]:
        future, portion = waiting.popleft()
        try:
            tokens = future.result().result()
        except Exception as error:
            for other, _ in waiting:
                other.cancel()
            place = makes.submit(_place_of_failure, tokenizer, portion).result()
            error.add_note(f"while it was tokenised: {place}")
            raise
        first = 0
        for num_rows, is_end in portion.parts:
            yield tokens.slice(first, num_rows), is_end
            first += num_rows

    with (
        ThreadPoolExecutor(1, "torchparquet-tokens") as converts,
        ThreadPoolExecutor(1, "torchparquet-tokenizer") as makes,
    ):
        try:
            for portion in portions:
                waiting.append((makes.submit(made, portion), portion))
                if len(waiting) > _PORTIONS_AHEAD:
                    yield from taken()
            while waiting:
                yield from taken()
        finally:
            for future, _ in waiting:
                future.cancel()


def _place_of_failure(tokenizer: Tokenizer, portion: Portion) -> str:
    """Return where the first text is that fails alone; else where the first one is."""
    for row, text in enumerate(portion.texts):
        try:
            tokenizer.tokens(tokenizer.make([text]))
        except Exception:  # what a user's function raises
            return portion.place_of(row)
    return f"{portion.place_of(0)}, and the texts after it"


class TokenWriter:
    """Writes the tokens of files of texts as Parquet, and logs how far it is."""

    def __init__(self, reader: TextReader, tokenizer: Tokenizer) -> None:
        """Write nothing yet."""
        self._reader = reader
        self._tokenizer = tokenizer
        self._begun = self._logged = time.monotonic()
        self._num_texts = self._num_tokens = 0

    def write(
        self,
        part: slice,
        to: Any,
        scratch: Path | None,
        held: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Write the tokens of a part: the same row groups, with the same rows.

        Without a folder for what is unfinished that is in memory too, and on no disk. `held` is
        called with the bytes of an unfinished row group that memory has.
        """
        # Imported here, where texts are: it takes a while.
        import pyarrow.parquet as pq

        # 1.9 bytes a token of 16,000, decoded as fast as 4 bytes without a codec.
        options = {
            "compression": "lz4",
            "use_byte_stream_split": [f"{_TOKENS}.list.element"],
            "use_dictionary": False,
            "write_page_checksum": True,
            "store_schema": False,
        }
        with (
            nullcontext() if scratch is None else tempfile.TemporaryFile(dir=scratch) as unfinished,
            pq.ParquetWriter(to, schema := self._tokenizer.schema, **options) as writer,
        ):
            row_group = _RowGroup(unfinished, schema)
            portions = self._reader.portions(self._reader.of_part(part))
            for tokens, is_end in encoded(self._tokenizer, portions):
                self._log(part, len(tokens), len(tokens[0].flatten()))
                row_group.add(tokens)
                held(row_group.held_bytes)
                if is_end:
                    row_group.write(writer)

    def close(self) -> None:
        """Join the threads that read."""
        self._reader.close()

    def _log(self, part: slice, num_texts: int, num_tokens: int) -> None:
        self._num_texts += num_texts
        self._num_tokens += num_tokens
        now = time.monotonic()
        if now - self._logged < _LOG_SECONDS:
            return
        self._logged = now
        manifest = self._reader.manifest
        files, file = manifest.files, int(manifest.row_group_file[part.start])
        _logger.info(
            "tokenising file %d of %d: %s; %s texts, %s tokens, %s tokens/s by this process",
            *(file + 1, len(files), files[file], f"{self._num_texts:,}"),
            *(f"{self._num_tokens:,}", f"{self._num_tokens / (now - self._begun):,.0f}"),
        )


class _RowGroup:
    """The tokens of a row group, in a file without a name or in memory until it is whole."""

    def __init__(self, file: IO[bytes] | None, schema: pa.Schema) -> None:
        self._file = file
        self._schema = schema
        self._begin()

    def _begin(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            self._file.truncate()
        self._in_memory = pa.BufferOutputStream()
        self._stream = pa.ipc.new_stream(self._file or self._in_memory, self._schema)
        self._num_rows = 0

    @property
    def held_bytes(self) -> int:
        return int(self._in_memory.tell())

    def add(self, tokens: pa.RecordBatch) -> None:
        self._stream.write_batch(tokens)
        self._num_rows += len(tokens)

    def write(self, writer: pq.ParquetWriter) -> None:
        self._stream.close()
        table = pa.ipc.open_stream(self._content()).read_all()
        writer.write_table(table, row_group_size=self._num_rows)
        self._begin()

    def _content(self) -> pa.Buffer:
        if self._file is None:
            return self._in_memory.getvalue()
        self._file.flush()
        # Nobody else can truncate it.
        return pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))


def written(
    paths: Sequence[Path],
    num_rows_of: Callable[[Path], list[int]],
    write: Callable[[Path, Path], None],
) -> None:
    """Have a whole file at each path: write those that no other process does, wait for others'.

    `write` is called with the path and with the draft to write.
    """

    def without_whole(paths: Sequence[Path]) -> list[Path]:
        return [path for path in paths if not _is_whole(path, num_rows_of(path))]

    left, latest = without_whole(paths), time.monotonic()
    while left:
        waited_for = []
        for path in left:
            with naming(path), _claimed(path) as draft:
                if draft is None:
                    waited_for.append(path)
                elif not _is_whole(path, num_rows_of(path)):
                    if path.exists():
                        _logger.warning("a token file is damaged, it is written anew: %s", path)
                    write(path, draft)
                    draft.replace(path)
        if len(waited_for) < len(left):
            latest = time.monotonic()
        elif time.monotonic() - latest < _WARN_SECONDS:
            time.sleep(_POLL_SECONDS)
        else:
            latest = time.monotonic()
            _logger.warning(
                "another process holds the lock of %d token files, and this one waits; if no such "
                "process works, delete %s",
                len(waited_for),
                _draft_of(waited_for[0]),
            )
        left = without_whole(waited_for)


def _is_whole(path: Path, num_rows: list[int]) -> bool:
    """Return whether a file is there and has these row groups."""
    import pyarrow.parquet as pq

    try:
        footer = pq.read_metadata(path)
    except FileNotFoundError:
        return False
    except pa.ArrowException:
        return False
    except OSError as error:
        if error.errno is not None:
            raise
        return False  # pyarrow's, of a footer that is damaged
    return num_rows == [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}{_DRAFT}")


@contextmanager
def _claimed(path: Path) -> Iterator[Path | None]:
    """Yield the draft of a file; None while another process writes it.

    The draft is locked, and so free for others as soon as its writer has ended, however it ended.
    """
    draft = _draft_of(path)
    with draft.open("ab") as file:
        descriptor = file.fileno()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        if not _is_same(descriptor, draft):
            yield None  # its former owner has just renamed it
            return
        try:
            yield draft
        finally:
            if _is_same(descriptor, draft):
                with suppress(FileNotFoundError):
                    draft.unlink()


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
