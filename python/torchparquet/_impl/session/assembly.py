"""Assembles the parts of a data set from the constructor's options."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from torchparquet._impl.batches.columns import ColumnsArgument, NullsArgument
from torchparquet._impl.batches.fields import Field
from torchparquet._impl.checks import listed, shown
from torchparquet._impl.files.discovery import SourceArgument
from torchparquet._impl.files.footers.decryption import FileKeys
from torchparquet._impl.files.manifest import Manifest
from torchparquet._impl.files.manifest_reading import open_manifest
from torchparquet._impl.files.remote.storage import StorageArguments, with_more
from torchparquet._impl.files.remote.urls import is_remote_url
from torchparquet._impl.functions.decoders import Decoder
from torchparquet._impl.functions.transforms import Processor, Transform, Transforms
from torchparquet._impl.plan.plan_options import PlanOptions, check_dynamic
from torchparquet._impl.plan.step_costs import RowCosts
from torchparquet._impl.ranks.sharding import Membership
from torchparquet._impl.reading.read_options import ReadOptions
from torchparquet._impl.reading.word_pass import WordPass
from torchparquet._impl.rows.exclusions import Exclusions
from torchparquet._impl.rows.filters import both, filters_expression
from torchparquet._impl.rows.select_rows import RowArguments, select_rows
from torchparquet._impl.sequences.by_length import counted_field, group_rows
from torchparquet._impl.sequences.length_pass import LengthPass, pack_rows
from torchparquet._impl.sequences.row_costs import cost_rows
from torchparquet._impl.tables.sources import table_source
from torchparquet._impl.text.tokenized import TextSource, tokenized
from torchparquet.errors import FileChangedError
from torchparquet.options import (
    Ahead,
    Balanced,
    ByLength,
    Order,
    Pack,
    Shuffle,
    Unique,
    Weights,
    Window,
)


def check_together(
    plan: PlanOptions,
    membership: Membership,
    *,
    pack: Pack | Window | None,
    by_length: ByLength | None,
    sample: Balanced | Weights | None,
    unique: str | Unique | None,
    window: tuple[int, int] | None,
    is_global: bool,
) -> None:
    """Check the options that exclude each other."""
    if pack is not None and not isinstance(pack, Pack | Window):
        raise TypeError(f"pack must be a Pack, a Window or None, got {shown(pack)}")
    if sample is not None and not isinstance(sample, Balanced | Weights):
        raise TypeError(f"sample must be a Balanced, a Weights or None, got {shown(sample)}")
    if unique is not None and not isinstance(unique, str | Unique):
        raise TypeError(
            f"unique must be the name of a column, a Unique or None, got {shown(unique)}"
        )
    canonical = plan.order.canonical_world_size
    if plan.even == "dynamic":
        check_dynamic({"canonical_world_size": (canonical, None)})
    elif membership.ranks.store is not None:
        raise ValueError(f'Ranks(store=...) needs even="dynamic", got even={plan.even!r}')
    keys = repr(unique) if isinstance(unique, str) else "Unique(...)"
    named = {
        "pack=Window(...)": isinstance(pack, Window),
        f"sample={type(sample).__name__}(...)": sample is not None,
        f"unique={keys}": unique is not None,
    }
    if any(named.values()):
        first = next(name for name, is_given in named.items() if is_given)
        is_across = isinstance(unique, Unique) and unique.across_ranks
        possible = Order(canonical_world_size=canonical if is_across else None)
        _refuse_beside(
            first,
            {
                **{name: is_given for name, is_given in named.items() if name != first},
                "batch_size=ByLength(...)": by_length is not None,
                "batch_size=None": plan.batch_size is None,
                "pack=Pack(...)": isinstance(pack, Pack),
                "order": plan.order != possible,
                'even="dynamic"': plan.even == "dynamic",
                "shuffle_window=0": plan.shuffle and window == (0, 0),
            },
        )
    if is_global:
        _refuse_beside(
            'shuffle="global"',
            {
                "shuffle_window": window is not None,
                **named,
                "batch_size=ByLength(...)": by_length is not None,
                "batch_size=None": plan.batch_size is None,
                "pack=Pack(...)": isinstance(pack, Pack),
                "order": plan.order != Order(),
                'even="dynamic"': plan.even == "dynamic",
            },
        )
    if by_length is None:
        return
    excluded = {
        "pack": pack is not None,
        "canonical_world_size": canonical is not None,
        'even="pad"': plan.even == "pad",
        'even="dynamic"': plan.even == "dynamic",
    }
    if by_length.rows is not None:
        del excluded["canonical_world_size"], excluded['even="pad"']
    _refuse_beside("batch_size=ByLength(...)", excluded)
    if by_length.cost is None:
        return
    if not plan.shuffle or window == (0, 0):
        raise ValueError(
            "ByLength(cost=...) needs shuffle=True and a shuffle_window, whose rows it deals into "
            f"steps; got shuffle={plan.shuffle}" + (", shuffle_window=0" if window else "")
        )
    # The costs say which row groups a rank reads together.
    excluded = {
        "Order(within_rank=True)": plan.order.within_rank,
        'Order(balance="bytes")': plan.order.balance == "bytes",
    }
    _refuse_beside("ByLength(cost=...)", excluded)


def permutation_of_all(shuffle: bool | str | Shuffle) -> Shuffle | None:
    """Return how all rows are permuted together, if they are; raises for an unknown word."""
    given = Shuffle(shuffle) if isinstance(shuffle, str) else shuffle  # type: ignore[arg-type]
    return given if isinstance(given, Shuffle) else None


def _refuse_beside(name: str, excluded: Mapping[str, bool]) -> None:
    found = [other for other, is_given in excluded.items() if is_given]
    if found:
        raise ValueError(f"{name} does not go with {', '.join(found)}")


class Asked(NamedTuple):
    """The columns that a user asks for, and what samples they become."""

    columns: ColumnsArgument
    nulls: NullsArgument
    pack: Pack | Window | None


@dataclass(frozen=True)
class Source:
    """Files or data in memory, and which of their rows are read."""

    paths: SourceArgument
    rows: RowArguments
    keys: FileKeys | None
    storage: StorageArguments
    num_threads: int | None  # that read footers; None for the number of processors

    def open(self, *, with_sizes: bool) -> Manifest:
        """Return the manifest of the row groups and rows that are left."""
        storage, paths, rows = self.storage, self.paths, self.rows
        table = table_source(paths)
        if table is not None:
            if storage.filesystem is None and not storage.of_store:
                options = with_more(table.storage_options or {}, storage.named)
                is_remote = is_remote_url(table.paths[0])
                storage = replace(
                    storage, options=options if is_remote else None, filesystem=table.filesystem
                )
            paths = list(table.paths)
            rows = replace(rows, filters=both(rows.filters, table.filters), left=table.deleted)
        exclusions = None if rows.excluding is None else Exclusions(rows.excluding)
        if rows.filters is not None:
            # Values that can be read once are, here.
            rows = replace(rows, filters=filters_expression(rows.filters))
        # A table tells of its files after their footers.
        early = rows.early() if table is None else None
        with nullcontext() if early is None else closing(early):
            manifest, footers = open_manifest(
                paths,
                self.num_threads,
                self.keys,
                storage=storage,
                with_chunk_sizes=with_sizes,
                with_contents=rows.filters is not None,
                leave_out=None if exclusions is None else exclusions.left,
                early=early,
            )
            if table is not None:
                manifest = table.narrowed(table.applied(manifest))
            if exclusions is not None:
                manifest = exclusions.narrowed(manifest)
            return select_rows(manifest, rows, self.keys, storage, footers, early)

    def open_whole(self, manifest: Manifest) -> Manifest:
        """Return the manifest of all rows; it is the given one if no option leaves rows out."""
        if self.rows.is_empty:
            return manifest
        whole = RowArguments(excluding=self.rows.excluding)
        return replace(self, rows=whole).open(with_sizes=False)

    def tokenized(
        self,
        manifest: Manifest,
        asked: Asked,
        reading: ReadOptions,
        *,
        with_sizes: bool,
        needs_counts: bool,
    ) -> tuple[Source, Manifest, Asked, TextSource | None]:
        """Return the token files that texts become, and how these are packed, in place of texts.

        What is not to be tokenised stays as it is. Last are texts that are tokenised on the way.
        """
        columns, nulls, pack = asked
        if not isinstance(pack, Pack) or pack.tokenizer is None:
            return self, manifest, asked, None
        storage, folder = self.storage, pack.token_cache
        if folder is None and storage.cache_dir is not None:
            folder = f"{os.fspath(storage.cache_dir)}.tokens"
        tokens = tokenized(
            manifest,
            (columns, nulls, pack),
            reading,
            self.keys,
            folder,
            self.paths,
            needs_counts=needs_counts,
        )
        cache = None
        if folder is not None and storage.manifest_cache is not None:
            cache = f"{os.fspath(storage.manifest_cache)}.tokens"
        made = replace(
            self,
            paths=tokens.files,
            rows=RowArguments(),
            keys=None,
            storage=StorageArguments(
                manifest_cache=cache,
                # Nothing of encrypted texts, not even how long they are.
                share=None if self.keys is not None else storage.share,
            ),
        )
        opened = made.open(with_sizes=with_sizes)
        if opened.row_group_num_rows.tolist() != tokens.row_group_num_rows:
            raise FileChangedError(
                "token files do not have the rows of their texts; delete the folder, and they are "
                f"made anew: {opened.root!r}"
            )
        if cache is not None:
            # What is kept of tokens is of these files: a tokenizer may not keep its promise.
            cache = f"{cache}.{opened.content_fingerprint}"
            made = replace(made, storage=replace(made.storage, manifest_cache=cache))
        asked = Asked(tokens.columns, None, tokens.pack)
        return made, opened.made_of(tokens.origin), asked, tokens.on_the_way

    def word_pass(self, manifest: Manifest, reading: ReadOptions) -> WordPass:
        """Return what finds the words of columns whose vocabulary is not stated."""
        whole = partial(self.open_whole, manifest)
        return WordPass(whole, reading, self.keys, self.storage)

    def samples(
        self,
        manifest: Manifest,
        fields: tuple[Field, ...],
        reading: ReadOptions,
        sample: TextSource | Pack | Window | ByLength | None,
    ) -> tuple[Manifest, Manifest, RowCosts | None]:
        """Return the manifests of the rows to read and of the samples they become, and costs."""
        if isinstance(sample, TextSource):
            return manifest, sample.planned, None
        if sample is None or isinstance(sample, Window):
            return manifest, manifest, None
        if isinstance(sample, ByLength) and sample.rows is None:
            manifest = manifest.keep(manifest.row_group_num_rows > 0)
        length_pass = LengthPass(manifest, reading, self.keys, self.storage)
        if isinstance(sample, Pack):
            packed = pack_rows(length_pass, fields)
            return packed, packed, None
        field, made = counted_field(sample, fields), manifest
        if sample.cost is not None:
            length_pass = replace(length_pass, known=length_pass.of_rows(field))
        if sample.rows is None:
            made = group_rows(length_pass, sample, field)
        if sample.cost is None:
            return manifest, made, None
        return manifest, made, cost_rows(length_pass, sample, field, made.row_group_num_rows)


def transforms_of(
    names: list[str],
    decoders: Mapping[str, Decoder],
    processors: Mapping[str, Processor] | None,
    transform: Transform | None,
) -> Transforms | None:
    """Return the functions, checked against the names of a batch; None if there are none."""
    _refuse_repeated("lengths and masks add", names)
    given: object = transform
    if given is Ahead:
        raise TypeError(
            "Ahead takes the function and how many work: transform=Ahead(function, threads=8), or "
            "processes=8. Got the class Ahead itself"
        )
    if processors is None and transform is None and not decoders:
        return None
    transforms = Transforms(processors, transform, decoders)
    decoded = transforms.names_of(names)
    _refuse_repeated("decode adds", decoded)
    transforms.check_names(decoded)
    return transforms


def _refuse_repeated(adding: str, names: Sequence[str]) -> None:
    repeated = listed([name for name, count in Counter(names).items() if count > 1])
    if repeated:
        raise ValueError(f"{adding} keys that columns have too, rename those: {repeated}")
