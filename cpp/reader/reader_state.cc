#include "reader/reader_state.h"

#include <algorithm>
#include <utility>

#include "base/process_owned.h"
#include "reader/read_order.h"
#include "reader/reader_plan.h"
#include "reader/schedule/slice_stream.h"
#include "reader/windows/window_stream.h"

namespace torchparquet {
namespace {

std::shared_ptr<SinkPool> ChooseSinks(std::shared_ptr<SinkPool> offered,
                                      const ReaderSpec& spec) {
  const int64_t max_bytes = spec.max_memory_bytes;
  if (offered != nullptr && offered->max_sink_bytes() == max_bytes) return offered;
  return SinkPool::Make(max_bytes / 4, max_bytes);
}

std::shared_ptr<RemoteBlocks> MakeRemoteBlocks(const ReaderSpec& spec) {
  if (spec.files->fetcher() == nullptr) return nullptr;
  return std::make_shared<RemoteBlocks>(spec.files->fetcher(), spec.files->cached());
}

std::unique_ptr<TaskStream> MakeTasks(const TaskContext& context,
                                      const MemoryPlan& memory, KeptScratch kept) {
  const ReaderSpec& spec = *context.spec;
  const WorkSplit split = MakeWorkSplit(spec);
  if (spec.has_windows()) {
    return std::make_unique<WindowStream>(context, split, memory.max_columns,
                                          std::move(kept));
  }
  return std::make_unique<SliceStream>(
      context,
      SliceStream::Bounds{.cut = {.max_rows = memory.max_slice_rows,
                                  .batch_rows = spec.batch_rows / spec.num_lanes(),
                                  // A chunk that is one batch stays whole: of several
                                  // failures in a batch, that of the first column counts.
                                  .split = spec.batch_rows > 0 ? split : WorkSplit{}},
                          .max_held_bytes = MaxHeldBytes(spec, *context.layout, memory)},
      std::move(kept));
}

std::shared_ptr<SlabPool> ChooseSlabs(std::shared_ptr<SlabPool> offered,
                                      const ReaderState& state) {
  if (state.spec.lent_slabs) return nullptr;
  const int64_t slab_bytes = state.layout.slab_bytes;
  if (offered != nullptr && offered->slab_bytes() == slab_bytes) return offered;
  // A loop holds its batch until it has the next one: given back at the end of each
  // epoch, their memory would be faulted in again in the next.
  constexpr int64_t kHeldByLoop = 2;
  const MemoryPlan& memory = state.memory;
  return SlabPool::Make(slab_bytes, memory.max_slabs * slab_bytes,
                        std::min(kHeldByLoop * slab_bytes, memory.max_held_bytes));
}

std::shared_ptr<BufferPool> ChooseFetched(std::shared_ptr<BufferPool> offered,
                                          const ReaderSpec& spec) {
  const int64_t max_bytes = spec.prefetch_bytes;
  if (offered != nullptr && offered->max_bytes() == max_bytes) return offered;
  return std::make_shared<BufferPool>(max_bytes);
}

std::unique_ptr<Prefetcher> MakePrefetcher(ReaderState* state) {
  if (state->remote == nullptr) return nullptr;
  return std::make_unique<Prefetcher>(
      Prefetcher::Parts{.files = state->files,
                        .blocks = state->remote,
                        .columns = StoredColumns(state->spec),
                        .next_steps = ReadOrder(state->spec, state->batches),
                        .carried = state->carried,
                        .memory = state->fetched,
                        .budget_bytes = state->spec.prefetch_bytes,
                        .num_lanes = state->spec.num_lanes(),
                        .on_ready = [state] {
                          const std::lock_guard lock(state->mutex);
                          state->idle.Wake();
                        }});
}

int64_t CachedBytes(const ReaderSpec& spec) {
  const auto cached = spec.files->cached();
  return cached == nullptr ? 0 : cached->cache().stats().bytes_read;
}

}  // namespace

ReaderState::ReaderState(ReaderSpec reader_spec, ReaderMemory offered)
    : spec(std::move(reader_spec)),
      batches(MakeBatchMap(spec)),
      layout(
          MakeBatchLayout(spec.fields, std::max<int64_t>(1, batches.max_batch_rows()))),
      memory(MakeMemoryPlan(spec, layout, batches)),
      slabs(ChooseSlabs(std::move(offered.slabs), *this)),
      scratch(offered.scratch != nullptr ? std::move(offered.scratch)
                                         : std::make_shared<ScratchPool>()),
      remote(MakeRemoteBlocks(spec)),
      files(std::make_shared<ReaderFiles>(spec.files, remote)),
      fetched(ChooseFetched(std::move(offered.fetched), spec)),
      carried(offered.carried != nullptr ? std::move(offered.carried)
                                         : MakeProcessOwned<CarriedFetches>()),
      fetched_before(remote == nullptr ? FetchStats() : remote->fetcher()->stats()),
      cached_before(CachedBytes(spec)),
      jagged(RowBytes(spec), MaxItemsBytes(spec, layout, memory),
             ChooseSinks(std::move(offered.sinks), spec)),
      ring(batches.num_batches(), memory.max_slabs),
      prefetcher(MakePrefetcher(this)),
      tasks(MakeTasks(context(), memory, scratch->TakeKept())),
      task_costs(static_cast<size_t>(spec.num_tasks())) {}

TaskContext ReaderState::context() {
  return {.spec = &spec,
          .batches = &batches,
          .layout = &layout,
          .files = files.get(),
          .jagged = &jagged,
          .ring = &ring,
          .stopping = &stopping,
          .prefetcher = prefetcher.get()};
}

FetchStats ReaderState::Fetched() const {
  return remote == nullptr ? FetchStats() : remote->fetcher()->stats() - fetched_before;
}

int64_t ReaderState::BytesFromCache() const { return CachedBytes(spec) - cached_before; }

}  // namespace torchparquet
