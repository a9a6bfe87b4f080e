#include "bindings/batch_reader.h"

#include <pybind11/stl.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "bindings/batch_objects.h"
#include "bindings/data_files.h"
#include "bindings/reader_stats.h"
#include "bindings/share_arrays.h"
#include "bindings/without_gil.h"
#include "reader/parallel_reader.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

std::vector<int64_t> ToVector(const Int64Array& array) {
  return {array.data(), array.data() + array.size()};
}

// A ParallelReader for Python: waits without the GIL, lets signals through.
class BatchReader {
 public:
  // `files` are those of `spec`.
  BatchReader(ReaderSpec spec, std::shared_ptr<DataFiles> files, ReaderMemory memory)
      : files_(std::move(files)),
        objects_(spec),
        reader_(std::make_unique<ParallelReader>(std::move(spec), std::move(memory))) {}

  ~BatchReader() {
    // Threads are joined here; they never ask for the GIL, so holding it is safe.
    reader_.reset();
  }

  py::typing::Optional<BatchObject> Next() {
    constexpr std::chrono::milliseconds kSlice{100};
    while (true) {
      auto result = WithoutGil([&] { return reader_->Next(kSlice); });
      switch (result.status) {
        case BatchRing::TakeStatus::kEnded:
          return py::none();
        case BatchRing::TakeStatus::kTaken:
          return objects_.Make(std::move(result), reader_->layout().slab_bytes);
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
  const std::shared_ptr<DataFiles> files_;  // outlives the threads, which read them
  const BatchObjects objects_;
  std::unique_ptr<ParallelReader> reader_;
};

std::unique_ptr<BatchReader> MakeBatchReader(
    std::shared_ptr<DataFiles> files, Int64Array chunk_file, Int64Array chunk_row_group,
    Int64Array chunk_begin, Int64Array chunk_num_rows, Int64Array chunk_first_row_id,
    BoolArray chunk_valid, Int64Array window_num_chunks, Uint64Array window_key,
    Int64Array window_begin, Int64Array window_end, const Int64Array& lane_num_chunks,
    const Int64Array& lane_num_windows, const Int64Array& lane_index, int64_t rank,
    int64_t world_size, int64_t batch_rows, const Int64Array& batch_sizes,
    std::vector<FieldSpec> fields, std::vector<ColumnSpec> columns, int64_t row_id_field,
    int64_t row_valid_field, int64_t num_threads, int64_t max_memory_bytes,
    bool lent_slabs, ReaderMemory memory) {
  const ShareArrays arrays{std::move(chunk_file),         std::move(chunk_row_group),
                           std::move(chunk_begin),        std::move(chunk_num_rows),
                           std::move(chunk_first_row_id), std::move(chunk_valid)};
  ReaderSpec spec{.files = files->files(),
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
  return std::make_unique<BatchReader>(std::move(spec), std::move(files),
                                       std::move(memory));
}

}  // namespace

void BindReader(py::module_& m) {
  py::class_<ReaderMemory>(m, "ReaderMemory").def(py::init<>());
  BindStats(m);
  py::class_<FieldPlace>(m, "FieldPlace")
      .def_readonly("values_offset", &FieldPlace::values_offset)
      .def_readonly("valid_offset", &FieldPlace::valid_offset);
  py::class_<BatchReader>(m, "BatchReader")
      .def(py::init(&MakeBatchReader), py::kw_only(), py::arg("files").none(false),
           py::arg("chunk_file"), py::arg("chunk_row_group"), py::arg("chunk_begin"),
           py::arg("chunk_num_rows"), py::arg("chunk_first_row_id"),
           py::arg("chunk_valid"), py::arg("window_num_chunks"), py::arg("window_key"),
           py::arg("window_begin"), py::arg("window_end"), py::arg("lane_num_chunks"),
           py::arg("lane_num_windows"), py::arg("lane_index"), py::arg("rank"),
           py::arg("world_size"), py::arg("batch_rows"), py::arg("batch_sizes"),
           py::arg("fields"), py::arg("columns"), py::arg("row_id_field"),
           py::arg("row_valid_field"), py::arg("num_threads"),
           py::arg("max_memory_bytes"), py::arg("lent_slabs"), py::arg("memory"))
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
      .def_property_readonly("memory",
                             [](const BatchReader& r) { return r.reader().memory(); })
      .def_property_readonly("stats",
                             [](const BatchReader& r) { return r.reader().stats(); });
}

}  // namespace torchparquet
