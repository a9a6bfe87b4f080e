#include "batch_reader.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "file_keys.h"
#include "held_contents.h"
#include "page_codec.h"
#include "parallel_reader.h"
#include "without_gil.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

using Int64Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;
using Uint64Array = py::array_t<uint64_t, py::array::c_style | py::array::forcecast>;
using BoolArray = py::array_t<bool, py::array::c_style | py::array::forcecast>;

// A slab as a NumPy array that returns it to its pool when the last view dies.
py::array_t<uint8_t> ToArray(SlabPool::Slab slab, int64_t num_bytes) {
  auto owner = std::make_unique<SlabPool::Slab>(std::move(slab));
  uint8_t* data = owner->data();
  const py::capsule capsule(
      owner.get(), [](void* pointer) { delete static_cast<SlabPool::Slab*>(pointer); });
  static_cast<void>(owner.release());
  return py::array_t<uint8_t>(num_bytes, data, capsule);
}

// A sink's items as a NumPy array that returns the memory when the last view dies.
py::array ToArray(SinkPool::Lease lease, const py::dtype& dtype) {
  auto owner = std::make_unique<SinkPool::Lease>(std::move(lease));
  const auto bytes = (*owner)->bytes();
  const py::capsule capsule(
      owner.get(), [](void* pointer) { delete static_cast<SinkPool::Lease*>(pointer); });
  static_cast<void>(owner.release());
  return {dtype, static_cast<py::ssize_t>(bytes.size()) / dtype.itemsize(), bytes.data(),
          capsule};
}

// What the items of a field of variable length are.
struct ItemsForm {
  py::dtype dtype;  // uint8 where not every torch takes the dtype from NumPy
  bool has_valid;
};

std::string ArrayDtype(kernels::Dtype dtype) {
  switch (dtype) {
    case kernels::Dtype::kBFloat16:
    case kernels::Dtype::kUInt16:
    case kernels::Dtype::kUInt32:
    case kernels::Dtype::kUInt64:
      return "uint8";
    default:
      return std::string(kernels::DtypeName(dtype));
  }
}

std::vector<ItemsForm> FormsOf(const ReaderSpec& spec) {
  std::vector<ItemsForm> forms;
  for (size_t field = 0; field < spec.fields.size(); ++field) {
    if (spec.fields[field].num_offsets == 0) continue;
    const auto column =
        std::ranges::find(spec.columns, static_cast<int64_t>(field), &ColumnSpec::field);
    const bool has_column = column != spec.columns.end();
    forms.push_back({py::dtype(has_column ? ArrayDtype(column->source.dtype) : "uint8"),
                     spec.fields[field].has_item_valid});
  }
  return forms;
}

// The share as arrays, one entry per chunk.
struct ShareArrays {
  Int64Array file, row_group, begin, num_rows, first_row_id;
  BoolArray valid;
};

Share ToShare(const ShareArrays& arrays, int64_t rank, int64_t world_size) {
  Share share{.rank = rank, .world_size = world_size, .chunks = {}};
  const py::ssize_t num_chunks = arrays.file.size();
  for (const py::ssize_t size :
       {arrays.row_group.size(), arrays.begin.size(), arrays.num_rows.size(),
        arrays.first_row_id.size(), arrays.valid.size()}) {
    if (size != num_chunks)
      throw py::value_error("the arrays of a share differ in length");
  }
  share.chunks.reserve(static_cast<size_t>(num_chunks));
  for (py::ssize_t i = 0; i < num_chunks; ++i) {
    share.chunks.push_back({.file = arrays.file.at(i),
                            .rows = {.row_group = arrays.row_group.at(i),
                                     .begin = arrays.begin.at(i),
                                     .num_rows = arrays.num_rows.at(i)},
                            .first_row_id = arrays.first_row_id.at(i),
                            .valid = arrays.valid.at(i)});
  }
  return share;
}

// The shuffle windows of a share as arrays, one entry per window.
struct WindowArrays {
  Int64Array num_chunks;
  Uint64Array key;
  Int64Array begin, end;
};

std::vector<Window> ToWindows(const WindowArrays& arrays) {
  const py::ssize_t num_windows = arrays.num_chunks.size();
  for (const py::ssize_t size :
       {arrays.key.size(), arrays.begin.size(), arrays.end.size()}) {
    if (size != num_windows)
      throw py::value_error("the arrays of windows differ in length");
  }
  std::vector<Window> windows;
  windows.reserve(static_cast<size_t>(num_windows));
  for (py::ssize_t i = 0; i < num_windows; ++i) {
    windows.push_back({.num_chunks = arrays.num_chunks.at(i),
                       .key = arrays.key.at(i),
                       .begin = arrays.begin.at(i),
                       .end = arrays.end.at(i)});
  }
  return windows;
}

// Divides the share's chunks and windows, given lane after lane, into shares of their
// own.
void DealToLanes(const std::vector<int64_t>& num_chunks,
                 const std::vector<int64_t>& num_windows,
                 const std::vector<int64_t>& index, ReaderSpec* spec) {
  if (num_chunks.empty()) return;
  const bool has_windows = !spec->share.windows.empty();
  if (index.size() != num_chunks.size() ||
      (has_windows && num_windows.size() != num_chunks.size())) {
    throw py::value_error("the arrays of lanes differ in length");
  }
  const Share all = std::move(spec->share);
  auto chunk = all.chunks.begin();
  auto window = all.windows.begin();
  for (size_t lane = 0; lane < num_chunks.size(); ++lane) {
    const int64_t lane_windows = has_windows ? num_windows[lane] : 0;
    if (num_chunks[lane] < 0 || num_chunks[lane] > all.chunks.end() - chunk ||
        lane_windows < 0 || lane_windows > all.windows.end() - window) {
      throw py::value_error("lanes have more chunks or windows than there are");
    }
    Share share{.rank = index[lane],
                .world_size = all.world_size,
                .chunks = {chunk, chunk + num_chunks[lane]},
                .windows = {window, window + lane_windows}};
    chunk += num_chunks[lane];
    window += lane_windows;
    if (lane == 0) {
      spec->share = std::move(share);
    } else {
      spec->beside.push_back(std::move(share));
    }
  }
  if (chunk != all.chunks.end() || window != all.windows.end()) {
    throw py::value_error("lanes have fewer chunks or windows than there are");
  }
}

std::vector<int64_t> ToVector(const Int64Array& array) {
  return {array.data(), array.data() + array.size()};
}

std::vector<PlannedFile> ToFiles(const std::vector<std::string>& paths,
                                 const Int64Array& num_bytes, const Int64Array& mtime_ns,
                                 const Int64Array& inode) {
  std::vector<PlannedFile> files;
  files.reserve(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    const auto index = static_cast<py::ssize_t>(i);
    files.push_back({paths[i],
                     {.num_bytes = num_bytes.at(index),
                      .mtime_ns = mtime_ns.at(index),
                      .inode = inode.at(index)}});
  }
  return files;
}

// What Python receives of a batch: its memory (a uint8 array, or the token of a lent
// slab), its number of rows, and for each field of variable length the offsets of all
// lists but the outermost, the values, and their mask, None where none is wanted. None
// after the last batch.
using BatchMemoryObject = py::typing::Union<py::array_t<uint8_t>, py::int_>;
using ItemsObject = py::typing::Tuple<py::typing::List<py::array_t<int64_t>>, py::array,
                                      py::typing::Optional<py::array>>;
using NextObject = py::typing::Optional<
    py::typing::Tuple<BatchMemoryObject, py::int_, py::typing::List<ItemsObject>>>;

py::list ToObjects(std::vector<JaggedItems> fields, const std::vector<ItemsForm>& forms) {
  py::list objects;
  for (size_t i = 0; i < fields.size(); ++i) {
    JaggedItems& items = fields[i];
    py::list starts;
    for (SinkPool::Lease& level : items.starts) {
      starts.append(ToArray(std::move(level), py::dtype::of<int64_t>()));
    }
    py::object valid = py::none();
    if (forms[i].has_valid) valid = ToArray(std::move(items.valid), py::dtype("bool"));
    objects.append(py::make_tuple(std::move(starts),
                                  ToArray(std::move(items.values), forms[i].dtype),
                                  std::move(valid)));
  }
  return objects;
}

// A ParallelReader for Python: waits without the GIL, lets signals through.
class BatchReader {
 public:
  // `contents` are those of the files in `spec`.
  BatchReader(ReaderSpec spec, HeldContents contents, std::shared_ptr<SlabPool> pool,
              std::shared_ptr<SinkPool> sinks)
      : contents_(std::move(contents)),
        forms_(FormsOf(spec)),
        reader_(std::make_unique<ParallelReader>(std::move(spec), std::move(pool),
                                                 std::move(sinks))) {}

  ~BatchReader() {
    // Threads are joined here; they never ask for the GIL, so holding it is safe.
    reader_.reset();
  }

  NextObject Next() {
    constexpr std::chrono::milliseconds kSlice{100};
    while (true) {
      auto result = WithoutGil([&] { return reader_->Next(kSlice); });
      switch (result.status) {
        case BatchRing::TakeStatus::kEnded:
          return py::none();
        case BatchRing::TakeStatus::kTaken:
          return py::make_tuple(ToMemory(std::move(result.memory)), result.num_rows,
                                ToObjects(std::move(result.items), forms_));
        case BatchRing::TakeStatus::kTimedOut:
          if (PyErr_CheckSignals() != 0) throw py::error_already_set();
      }
    }
  }

  void Lend(uintptr_t data, int64_t token) {
    reader_->Lend(reinterpret_cast<uint8_t*>(data), token);  // an address from torch
  }

  void Stop() {
    WithoutGil([&] {
      reader_->Stop();
      return true;
    });
  }

  const ParallelReader& reader() const { return *reader_; }

 private:
  py::object ToMemory(BatchMemory memory) const {
    if (memory.lent_token >= 0) return py::int_(memory.lent_token);
    return ToArray(std::move(memory.slab), reader_->layout().slab_bytes);
  }

  const HeldContents contents_;         // outlives the threads, which read it
  const std::vector<ItemsForm> forms_;  // by field of variable length
  std::unique_ptr<ParallelReader> reader_;
};

std::unique_ptr<BatchReader> MakeBatchReader(
    const std::vector<std::string>& paths, const Int64Array& file_num_bytes,
    const Int64Array& file_mtime_ns, const Int64Array& file_inode, Int64Array chunk_file,
    Int64Array chunk_row_group, Int64Array chunk_begin, Int64Array chunk_num_rows,
    Int64Array chunk_first_row_id, BoolArray chunk_valid, Int64Array window_num_chunks,
    Uint64Array window_key, Int64Array window_begin, Int64Array window_end,
    const Int64Array& lane_num_chunks, const Int64Array& lane_num_windows,
    const Int64Array& lane_index, int64_t rank, int64_t world_size, int64_t batch_rows,
    const Int64Array& batch_sizes, std::vector<FieldSpec> fields,
    std::vector<ColumnSpec> columns, int64_t row_id_field, int64_t row_valid_field,
    int64_t num_threads, int64_t max_memory_bytes, bool lent_slabs,
    std::optional<std::shared_ptr<SlabPool>> pool,
    std::optional<std::shared_ptr<SinkPool>> sinks,
    const std::vector<py::buffer>& contents,
    const std::optional<std::shared_ptr<Decryption>>& decryption) {
  const ShareArrays arrays{std::move(chunk_file),         std::move(chunk_row_group),
                           std::move(chunk_begin),        std::move(chunk_num_rows),
                           std::move(chunk_first_row_id), std::move(chunk_valid)};
  ReaderSpec spec{.files = ToFiles(paths, file_num_bytes, file_mtime_ns, file_inode),
                  .share = ToShare(arrays, rank, world_size),
                  .batch_rows = batch_rows,
                  .batch_sizes = ToVector(batch_sizes),
                  .fields = std::move(fields),
                  .columns = std::move(columns),
                  .row_id_field = row_id_field,
                  .row_valid_field = row_valid_field,
                  .num_threads = num_threads,
                  .max_memory_bytes = max_memory_bytes,
                  .lent_slabs = lent_slabs};
  spec.share.windows = ToWindows({std::move(window_num_chunks), std::move(window_key),
                                  std::move(window_begin), std::move(window_end)});
  DealToLanes(ToVector(lane_num_chunks), ToVector(lane_num_windows), ToVector(lane_index),
              &spec);
  HeldContents held(contents);
  held.AddTo(&spec.files);
  AddKeys(decryption, &spec.files);
  return std::make_unique<BatchReader>(std::move(spec), std::move(held),
                                       std::move(pool).value_or(nullptr),
                                       std::move(sinks).value_or(nullptr));
}

double Seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

template <typename Object>
auto SecondsOf(std::chrono::nanoseconds Object::* member) {
  return [member](const Object& object) { return Seconds(object.*member); };
}

void BindStats(py::module_& m) {
  py::class_<CostSums>(m, "CostSums")
      .def_readonly("num_tasks", &CostSums::num_tasks)
      .def_readonly("bytes_read", &CostSums::bytes_read)
      .def_readonly("num_reads", &CostSums::num_reads)
      .def_readonly("bytes_decompressed", &CostSums::bytes_decompressed)
      .def_readonly("num_decompressed", &CostSums::num_decompressed)
      .def_property_readonly("open_seconds", SecondsOf<CostSums>(&CostSums::open_time))
      .def_property_readonly("read_seconds", SecondsOf<CostSums>(&CostSums::read_time))
      .def_property_readonly("decompress_seconds",
                             SecondsOf<CostSums>(&CostSums::decompress_time))
      .def_property_readonly("decode_seconds",
                             SecondsOf<CostSums>(&CostSums::decode_time));
  py::class_<ReaderStats>(m, "ReaderStats")
      .def_readonly("batches", &ReaderStats::batches)
      .def_readonly("rows", &ReaderStats::rows)
      .def_readonly("delivered_bytes", &ReaderStats::delivered_bytes)
      .def_readonly("columns", &ReaderStats::columns)
      .def_property_readonly("codecs",
                             [](const ReaderStats& stats) {
                               std::map<std::string, CostSums> named;
                               for (const auto& [codec, sums] : stats.codecs) {
                                 named[CodecName(codec)].Add(sums);
                               }
                               return named;
                             })
      .def_property_readonly("wait_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::consumer_wait))
      .def_property_readonly("first_wait_seconds",
                             SecondsOf<ReaderStats>(&ReaderStats::first_wait))
      .def_property_readonly(
          "wait_for_loop_seconds",
          [](const ReaderStats& stats) { return Seconds(stats.room_waits.for_consumer); })
      .def_property_readonly(
          "wait_for_memory_seconds",
          [](const ReaderStats& stats) { return Seconds(stats.room_waits.for_memory); })
      .def_readonly("num_waits", &ReaderStats::num_waits)
      .def_readonly("num_complete", &ReaderStats::num_complete)
      .def_readonly("num_in_flight", &ReaderStats::num_in_flight)
      .def_readonly("held_bytes", &ReaderStats::held_bytes);
}

}  // namespace

void BindReader(py::module_& m) {
  py::class_<SlabPool, std::shared_ptr<SlabPool>>(m, "SlabPool")
      .def_property_readonly("slab_bytes", &SlabPool::slab_bytes)
      .def_property_readonly("mapped_bytes", &SlabPool::mapped_bytes)
      .def_property_readonly("num_idle", &SlabPool::num_idle);
  py::class_<SinkPool, std::shared_ptr<SinkPool>>(m, "SinkPool")
      .def_property_readonly("idle_bytes", &SinkPool::idle_bytes);
  BindStats(m);
  py::class_<FieldPlace>(m, "FieldPlace")
      .def_readonly("values_offset", &FieldPlace::values_offset)
      .def_readonly("valid_offset", &FieldPlace::valid_offset);
  py::class_<BatchReader>(m, "BatchReader")
      .def(py::init(&MakeBatchReader), py::kw_only(), py::arg("paths"),
           py::arg("file_num_bytes"), py::arg("file_mtime_ns"), py::arg("file_inode"),
           py::arg("chunk_file"), py::arg("chunk_row_group"), py::arg("chunk_begin"),
           py::arg("chunk_num_rows"), py::arg("chunk_first_row_id"),
           py::arg("chunk_valid"), py::arg("window_num_chunks"), py::arg("window_key"),
           py::arg("window_begin"), py::arg("window_end"), py::arg("lane_num_chunks"),
           py::arg("lane_num_windows"), py::arg("lane_index"), py::arg("rank"),
           py::arg("world_size"), py::arg("batch_rows"), py::arg("batch_sizes"),
           py::arg("fields"), py::arg("columns"), py::arg("row_id_field"),
           py::arg("row_valid_field"), py::arg("num_threads"),
           py::arg("max_memory_bytes"), py::arg("lent_slabs"), py::arg("pool"),
           py::arg("sinks"), py::arg("contents"), py::arg("decryption"))
      .def("next", &BatchReader::Next)
      .def_property_readonly(
          "next_is_ready",
          [](const BatchReader& r) { return r.reader().next_is_ready(); })
      .def("lend", &BatchReader::Lend, py::arg("data"), py::arg("token"))
      .def("stop", &BatchReader::Stop)
      .def_property_readonly(
          "slab_bytes",
          [](const BatchReader& r) { return r.reader().layout().slab_bytes; })
      .def_property_readonly(
          "capacity_rows",
          [](const BatchReader& r) { return r.reader().layout().capacity_rows; })
      .def_property_readonly(
          "fields", [](const BatchReader& r) { return r.reader().layout().fields; })
      .def_property_readonly(
          "num_batches", [](const BatchReader& r) { return r.reader().num_batches(); })
      .def_property_readonly("max_slabs",
                             [](const BatchReader& r) { return r.reader().max_slabs(); })
      .def_property_readonly("sinks",
                             [](const BatchReader& r) { return r.reader().sinks(); })
      .def_property_readonly(
          "pool",
          [](const BatchReader& r) -> std::optional<std::shared_ptr<SlabPool>> {
            if (r.reader().pool() == nullptr) return std::nullopt;
            return r.reader().pool();
          })
      .def_property_readonly("stats",
                             [](const BatchReader& r) { return r.reader().stats(); });
}

}  // namespace torchparquet
