#include "bindings/windows.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>

#include "kernels/shuffle/permutation.h"
#include "reader/window_memory.h"

namespace py = pybind11;

namespace torchparquet {

void BindWindows(py::module_& m) {
  m.def(
      "window_order",
      [](uint64_t key, int64_t num_rows) {
        py::array_t<uint32_t> rows(num_rows);
        kernels::PermutedRows(key, {rows.mutable_data(), static_cast<size_t>(num_rows)});
        return rows;
      },
      py::arg("key"), py::arg("num_rows"));
  m.def("window_row_bytes", &WindowRowBytes, py::arg("fields"), py::arg("batch_rows"));
  m.def("tensor_bytes", &TensorBytes, py::arg("fields"), py::arg("num_rows"));
}

}  // namespace torchparquet
