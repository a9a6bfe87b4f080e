#include "bindings/specs.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tasks/reader_spec.h"

namespace py = pybind11;

namespace torchparquet {

void BindSpecs(py::module_& m) {
  py::class_<FieldSpec>(m, "FieldSpec")
      .def(py::init([](int64_t item_bytes, int64_t width, int64_t cell_items,
                       bool has_valid, int64_t valid_items, int64_t num_offsets,
                       bool has_item_valid, double row_bytes) {
             return FieldSpec{.item_bytes = item_bytes,
                              .width = width,
                              .cell_items = cell_items,
                              .has_valid = has_valid,
                              .valid_items = valid_items,
                              .num_offsets = num_offsets,
                              .has_item_valid = has_item_valid,
                              .row_bytes = row_bytes};
           }),
           py::kw_only(), py::arg("item_bytes"), py::arg("width"), py::arg("cell_items"),
           py::arg("has_valid"), py::arg("valid_items"), py::arg("num_offsets"),
           py::arg("has_item_valid"), py::arg("row_bytes"));
  py::class_<Vocabulary, std::shared_ptr<Vocabulary>>(m, "Vocabulary")
      .def(py::init([](const std::vector<py::bytes>& words, int64_t unknown_code) {
             return std::make_shared<Vocabulary>(
                 std::vector<std::string>(words.begin(), words.end()), unknown_code);
           }),
           py::arg("words"), py::arg("unknown_code"));
  py::class_<ColumnSpec>(m, "ColumnSpec")
      .def(py::init([](std::string path, std::vector<std::string> kinds,
                       const std::string& dtype, int64_t cell_items, int64_t num_offsets,
                       int64_t list_length,
                       std::optional<std::shared_ptr<Vocabulary>> vocabulary,
                       int64_t field, int64_t element, bool nulls_are_errors,
                       uint64_t fill_bits, std::optional<uint64_t> default_bits,
                       std::vector<uint64_t> file_bits) {
             const auto found = kernels::DtypeOfName(dtype);
             if (!found) throw py::value_error("no such dtype: " + dtype);
             return ColumnSpec{
                 .request = {.path = std::move(path),
                             .kinds = std::move(kinds),
                             .dtype = *found,
                             .cell_items = cell_items,
                             .num_offsets = num_offsets,
                             .list_length = list_length,
                             .vocabulary = std::move(vocabulary).value_or(nullptr),
                             .default_bits = default_bits},
                 .field = field,
                 .element = element,
                 .nulls = nulls_are_errors ? NullPolicy::kError : NullPolicy::kFill,
                 .fill_bits = fill_bits,
                 .file_bits = std::move(file_bits)};
           }),
           py::kw_only(), py::arg("path"), py::arg("kinds"), py::arg("dtype"),
           py::arg("cell_items"), py::arg("num_offsets"), py::arg("list_length"),
           py::arg("vocabulary"), py::arg("field"), py::arg("element"),
           py::arg("nulls_are_errors"), py::arg("fill_bits"), py::arg("default_bits"),
           py::arg("file_bits"));
}

}  // namespace torchparquet
