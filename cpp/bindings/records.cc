#include "bindings/records.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/without_gil.h"
#include "kernels/shuffle/keyed_order.h"
#include "kernels/shuffle/records.h"
#include "remote/disk_cache/cache_folder.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

template <typename T>
T* PointerOf(uint64_t address) {
  // The address of a tensor's memory, as `data_ptr` tells it.
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

void BindRecords(py::module_& m) {
  using kernels::RecordColumn;
  using kernels::RowItems;
  py::class_<RecordColumn>(m, "RecordColumn")
      .def(py::init([](uint64_t address, int64_t bytes, int64_t offset) {
             return RecordColumn{PointerOf<uint8_t>(address), bytes, offset};
           }),
           py::arg("address"), py::arg("bytes"), py::arg("offset"));
  py::class_<RowItems>(m, "RowItems")
      .def(py::init([](uint64_t address, int64_t bytes, uint64_t counts) {
             return RowItems{PointerOf<uint8_t>(address), bytes,
                             PointerOf<const int32_t>(counts)};
           }),
           py::arg("address"), py::arg("bytes"), py::arg("counts"));
  m.def(
      "keyed_rows",
      [](const Uint64Array& keys, int64_t num_rows, int64_t begin, int64_t count) {
        py::array_t<int64_t> rows(count);
        const std::span<int64_t> out(rows.mutable_data(), static_cast<size_t>(count));
        WithoutGil([&] { kernels::KeyedRows(SpanOf(keys), num_rows, begin, out); });
        return rows;
      },
      py::arg("keys"), py::arg("num_rows"), py::arg("begin"), py::arg("count"));
  m.def(
      "pack_records",
      [](const std::vector<RecordColumn>& columns, int64_t num_rows, int64_t record_bytes,
         uint64_t records) {
        WithoutGil([&] {
          kernels::PackRecords(columns, num_rows, record_bytes,
                               PointerOf<uint8_t>(records));
        });
      },
      py::arg("columns"), py::arg("num_rows"), py::arg("record_bytes"),
      py::arg("records"));
  m.def(
      "gather_records",
      [](const Uint64Array& records, int64_t record_bytes,
         const std::vector<RecordColumn>& columns) {
        WithoutGil([&, addresses = SpanOf(records)] {
          kernels::GatherRecords(addresses, record_bytes, columns);
        });
      },
      py::arg("records"), py::arg("record_bytes"), py::arg("columns"));
  m.def(
      "pack_items",
      [](const std::vector<RowItems>& kinds, int64_t num_rows, uint64_t out) {
        WithoutGil([&] { kernels::PackItems(kinds, num_rows, PointerOf<uint8_t>(out)); });
      },
      py::arg("kinds"), py::arg("num_rows"), py::arg("out"));
  m.def(
      "gather_items",
      [](const Uint64Array& rows, const std::vector<RowItems>& kinds) {
        WithoutGil(
            [&, addresses = SpanOf(rows)] { kernels::GatherItems(addresses, kinds); });
      },
      py::arg("rows"), py::arg("kinds"));
  m.def(
      "digests_of_blocks",
      [](const Array<uint8_t>& bytes, int64_t block_bytes) {
        return ArrayOf(WithoutGil([&, all = SpanOf(bytes)] {
          return kernels::DigestsOfBlocks(all, block_bytes);
        }));
      },
      py::arg("bytes"), py::arg("block_bytes"));
  m.def(
      "mark_cache_folder", [](const std::string& path) { CacheFolder{path}; },
      py::arg("path"));
}

}  // namespace torchparquet
