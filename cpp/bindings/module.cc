// The extension torchparquet._core: the core's classes as Python sees them. No logic.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "batches/layout.h"
#include "bindings/batch_reader.h"
#include "bindings/data_files.h"
#include "bindings/exceptions.h"
#include "bindings/file_keys.h"
#include "bindings/held_contents.h"
#include "bindings/specs.h"
#include "bindings/without_gil.h"
#include "files/footers.h"
#include "kernels/instructions.h"
#include "kernels/shuffle/permutation.h"
#include "pages/page_header.h"
#include "reader/epoch_ledger.h"
#include "reader/gloo_threads.h"
#include "reader/window_memory.h"
#include "tasks/chunk_cursor.h"
#include "windows/window_cells.h"
#include "windows/window_places.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

py::array_t<int64_t> ToArray(const std::vector<int64_t>& values) {
  return py::array_t<int64_t>(static_cast<py::ssize_t>(values.size()), values.data());
}

void BindFooters(py::module_& m) {
  py::class_<LeafColumn>(m, "LeafColumn")
      .def_readonly("path", &LeafColumn::path)
      .def_readonly("kind", &LeafColumn::kind)
      .def_readonly("dtype", &LeafColumn::dtype)
      .def_property_readonly("dtypes", &LeafColumn::dtypes)
      .def_property_readonly(
          "items",
          [](const LeafColumn& leaf) -> std::optional<int64_t> {
            const bool is_array = leaf.stored.stored == kernels::Stored::kFixedBytes;
            return is_array ? std::optional(leaf.cell_items()) : std::nullopt;
          })
      .def_property_readonly(
          "num_lists", [](const LeafColumn& leaf) { return leaf.element_levels.size(); })
      .def_property_readonly(
          "list_length",
          [](const LeafColumn& leaf) -> std::optional<int64_t> {
            return leaf.list_length > 0 ? std::optional(leaf.list_length) : std::nullopt;
          })
      .def_property_readonly("is_bytes", &LeafColumn::is_bytes)
      .def_readonly("nullable", &LeafColumn::nullable);
  const auto array = [](std::vector<int64_t> Footers::* member) {
    return [member](const Footers& footers) { return ToArray(footers.*member); };
  };
  py::class_<Footers>(m, "Footers")
      .def_property_readonly("file_num_bytes", array(&Footers::file_num_bytes))
      .def_property_readonly("file_mtime_ns", array(&Footers::file_mtime_ns))
      .def_property_readonly("file_inode", array(&Footers::file_inode))
      .def_property_readonly("file_digest", array(&Footers::file_digest))
      .def_property_readonly("file_has_hidden_columns",
                             array(&Footers::file_has_hidden_columns))
      .def_property_readonly("file_num_rows", array(&Footers::file_num_rows))
      .def_property_readonly("file_num_row_groups", array(&Footers::file_num_row_groups))
      .def_property_readonly("file_schema", array(&Footers::file_schema))
      .def_property_readonly("row_group_num_rows", array(&Footers::row_group_num_rows))
      .def_property_readonly("row_group_num_bytes", array(&Footers::row_group_num_bytes))
      .def_property_readonly("chunk_num_bytes", array(&Footers::chunk_num_bytes))
      .def(
          "content",
          [](const Footers& footers, size_t file) {
            const std::vector<uint8_t>& bytes = footers.contents.at(file);
            return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
          },
          py::arg("file"))
      .def_property_readonly("schemas",
                             [](const Footers& footers) { return footers.schemas; })
      .def_readonly("schema_leaf_bytes", &Footers::schema_leaf_bytes);
  m.def(
      "read_footers",
      [](const std::vector<std::string>& paths, int64_t num_threads,
         const std::vector<py::buffer>& contents,
         const std::optional<std::shared_ptr<Decryption>>& decryption,
         bool with_chunk_sizes, bool with_contents) {
        std::vector<PlannedFile> files;
        for (const std::string& path : paths) files.push_back({path, {}});
        const HeldContents held(contents);
        held.AddTo(&files);
        AddKeys(decryption, &files);
        auto footers = WithoutGil([&] {
          return ReadFooters(files, {with_chunk_sizes, with_contents}, num_threads);
        });
        if (decryption) (*decryption)->Close();
        return footers;
      },
      py::arg("paths"), py::arg("num_threads"), py::arg("contents"),
      py::arg("decryption") = py::none(), py::arg("with_chunk_sizes") = false,
      py::arg("with_contents") = false);
}

void BindCursor(py::module_& m) {
  py::class_<ChunkCursor>(m, "ChunkCursor")
      .def(py::init<int64_t, int64_t, int64_t>(), py::arg("num_positions"),
           py::arg("rank"), py::arg("world_size"))
      .def("claim", &ChunkCursor::Claim);
}

void BindLedger(py::module_& m) {
  // The array must be int64 and writable as it is: a converted copy would not be shared.
  using Words = py::array_t<int64_t, py::array::c_style>;
  const auto ledger = [](Words& words) {
    return EpochLedger({words.mutable_data(), static_cast<size_t>(words.size())});
  };
  m.attr("EPOCH_LEDGER_WORDS") = py::int_(EpochLedger::kNumWords);
  m.def(
      "begin_iteration",
      [ledger](Words words, int64_t key, int64_t worker) {
        return ledger(words).Begin(key, worker);
      },
      py::arg("words").noconvert(), py::arg("key"), py::arg("worker"));
  m.def(
      "num_iterations", [ledger](Words words) { return ledger(words).NumIterations(); },
      py::arg("words").noconvert());
  m.def(
      "epoch_of",
      [ledger](Words words, int64_t iteration) {
        return ledger(words).EpochOf(iteration);
      },
      py::arg("words").noconvert(), py::arg("iteration"));
  m.def(
      "set_epoch_of",
      [ledger](Words words, int64_t iteration, int64_t epoch) {
        ledger(words).SetEpochOf(iteration, epoch);
      },
      py::arg("words").noconvert(), py::arg("iteration"), py::arg("epoch"));
}

// What windows take of memory, for who plans how large they may be.
void BindWindowLimits(py::module_& m) {
  m.attr("FIELD_ALIGNMENT") = py::int_(BatchLayout::kFieldAlignment);
  m.attr("WINDOW_ROW_BYTES") = py::int_(WindowPlaces::kRowBytes);
  m.attr("LEAST_STAGED_COLUMNS") = py::int_(kLeastStagedColumns);
  m.def("are_staged", &WindowCells::AreItems, py::arg("cell_bytes"));
}

void BindPageHeader(py::module_& m) {
  py::class_<PageHeader>(m, "PageHeader")
      .def_property_readonly("is_data", &PageHeader::is_data)
      .def_property_readonly("is_dictionary",
                             [](const PageHeader& header) {
                               return header.kind == PageHeader::Kind::kDictionary;
                             })
      .def_readonly("header_bytes", &PageHeader::header_bytes)
      .def_readonly("compressed_bytes", &PageHeader::compressed_bytes)
      .def_readonly("checksum", &PageHeader::checksum)
      .def_readonly("num_values", &PageHeader::num_values)
      .def_readonly("encoding", &PageHeader::encoding);
  m.def(
      "parse_page_header",
      [](const py::bytes& content) {
        const auto bytes = static_cast<std::string_view>(content);
        // Both are bytes; only the sign that the type gives them differs.
        const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
        return ParsePageHeader({first, bytes.size()});
      },
      py::arg("content"));
}

void BindPermutation(py::module_& m) {
  m.def(
      "window_order",
      [](uint64_t key, int64_t num_rows) {
        const kernels::PermutationShape shape(num_rows);
        std::vector<uint16_t> tables(static_cast<size_t>(shape.num_table_entries()));
        const kernels::Permutation permutation(key, shape, tables);
        py::array_t<uint32_t> rows(num_rows);
        permutation.Rows(0, num_rows, rows.mutable_data());
        return rows;
      },
      py::arg("key"), py::arg("num_rows"));
}

}  // namespace
}  // namespace torchparquet

PYBIND11_MODULE(_core, m, py::mod_gil_not_used()) {
  using namespace torchparquet;
  m.attr("PYARROW_VERSION") = TORCHPARQUET_PYARROW_VERSION;
  RegisterExceptions();
  kernels::ChosenInstructions();  // fails here rather than in the middle of reading
  m.def("instructions",
        [] { return std::string(kernels::NameOf(kernels::ChosenInstructions())); });
  m.def("await_gloo_threads", [] {
    WithoutGil([] {
      AwaitGlooThreads();
      return true;
    });
  });
  BindDecryption(m);
  BindDataFiles(m);
  BindFooters(m);
  BindCursor(m);
  BindLedger(m);
  BindWindowLimits(m);
  BindPageHeader(m);
  BindPermutation(m);
  BindSpecs(m);
  BindReader(m);
}
