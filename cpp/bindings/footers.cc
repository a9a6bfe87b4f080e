#include "files/footers.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/data_files.h"
#include "bindings/module.h"
#include "bindings/remote_store.h"
#include "bindings/without_gil.h"
#include "format/offset_index.h"
#include "format/statistics.h"
#include "pages/page_header.h"

namespace py = pybind11;

namespace torchparquet {

namespace {

std::span<const uint8_t> BytesOf(const py::bytes& content) {
  const auto bytes = static_cast<std::string_view>(content);
  // Both are bytes; only the sign that the type gives them differs.
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

void BindBloomFilters(py::module_& m) {
  m.def(
      "bloom_filter_bytes",
      [](const py::bytes& content) { return BloomFilterBytes(BytesOf(content)); },
      py::arg("content"));
  m.def(
      "may_hold",
      [](const py::bytes& bloom_filter, const py::bytes& value) {
        return MayHold(BytesOf(bloom_filter), BytesOf(value));
      },
      py::arg("bloom_filter"), py::arg("value"));
}

py::bytes BytesOf(std::string_view content) { return {content.data(), content.size()}; }

std::vector<py::bytes> ObjectsOf(const std::vector<std::string_view>& contents) {
  std::vector<py::bytes> objects;
  objects.reserve(contents.size());
  for (const std::string_view content : contents) objects.push_back(BytesOf(content));
  return objects;
}

// Row after row: the offset and the bytes of the column index, then of the offset index.
Int64Array PlacesOf(const py::bytes& footer) {
  std::vector<int64_t> numbers;
  for (const IndexPlaces& places : FindIndexes(BytesOf(footer))) {
    for (const ByteRange& range : {places.column_index, places.offset_index}) {
      numbers.push_back(range.offset);
      numbers.push_back(range.num_bytes);
    }
  }
  constexpr py::ssize_t kNumbers = 4;
  return ArrayOf(numbers).reshape({std::ssize(numbers) / kNumbers, kNumbers});
}

// The first row of each page, and the end of the last.
std::optional<std::vector<int64_t>> PageRowsOf(const py::bytes& offset_index,
                                               int64_t chunk_offset, int64_t chunk_bytes,
                                               int64_t num_rows) {
  const auto index =
      OffsetIndex::Parse(BytesOf(offset_index), {chunk_offset, chunk_bytes}, num_rows);
  if (!index) return std::nullopt;
  std::vector<int64_t> rows;
  for (size_t page = 0; page < index->num_pages(); ++page) {
    rows.push_back(index->first_row(page));
  }
  rows.push_back(num_rows);
  return rows;
}

// For each page: nulls only, low, high; and the number of nulls, if it is told.
using PageBounds = std::tuple<std::vector<bool>, std::vector<py::bytes>,
                              std::vector<py::bytes>, std::vector<int64_t>>;

std::optional<PageBounds> PageBoundsOf(const py::bytes& column_index) {
  const auto index = ParseColumnIndex(BytesOf(column_index));
  if (!index) return std::nullopt;
  return PageBounds(index->has_nulls_only, ObjectsOf(index->low), ObjectsOf(index->high),
                    index->num_nulls);
}

// [G, 2] of a file's row groups: items, and lists that have some; -1 where not told.
Int64Array CountListsOf(const Footers& footers, size_t file, size_t leaf) {
  const std::vector<LeafColumn>& leaves =
      footers.schemas.at(static_cast<size_t>(footers.file_schema.at(file)));
  std::vector<int64_t> numbers;
  for (const ListCounts& counts : CountLists(
           footers.contents.at(file), static_cast<int64_t>(leaf), leaves.at(leaf))) {
    numbers.push_back(counts.num_items);
    numbers.push_back(counts.num_filled);
  }
  constexpr py::ssize_t kNumbers = 2;
  return ArrayOf(numbers).reshape({std::ssize(numbers) / kNumbers, kNumbers});
}

void BindLeafColumns(py::module_& m) {
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
      .def_readonly("list_lengths", &LeafColumn::list_lengths)
      .def_readonly("tensor_shape", &LeafColumn::tensor_shape)
      .def_property_readonly("is_bytes", &LeafColumn::is_bytes)
      .def_readonly("field_id", &LeafColumn::field_id)
      .def_readonly("nullable", &LeafColumn::nullable);
}

void BindPageIndexes(py::module_& m) {
  m.def("find_indexes", &PlacesOf, py::arg("footer"));
  m.def("page_bounds", &PageBoundsOf, py::arg("column_index"));
  m.def("page_rows", &PageRowsOf, py::arg("offset_index"), py::arg("chunk_offset"),
        py::arg("chunk_bytes"), py::arg("num_rows"));
}

}  // namespace

void BindFooters(py::module_& m) {
  BindLeafColumns(m);
  const auto array = [](std::vector<int64_t> Footers::* member) {
    return [member](const Footers& footers) { return ArrayOf(footers.*member); };
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
      .def("list_counts", &CountListsOf, py::arg("file"), py::arg("leaf"))
      .def_property_readonly("schemas",
                             [](const Footers& footers) { return footers.schemas; })
      .def_readonly("schema_leaf_bytes", &Footers::schema_leaf_bytes);
  m.def(
      "read_footers",
      [](const std::vector<std::string>& paths, int64_t num_threads,
         const std::vector<py::buffer>& contents,
         const std::optional<std::shared_ptr<KeyRing>>& decryption, bool with_chunk_sizes,
         bool with_contents, const std::optional<std::shared_ptr<RemoteStore>>& remote) {
        std::vector<PlannedFile> files;
        for (const std::string& path : paths) files.push_back({path, {}});
        const HeldContents held(contents);
        AddContents(held, &files);
        AddKeys(decryption, &files);
        if (remote) (*remote)->AddTo(&files);
        const FooterParts parts{.chunk_num_bytes = with_chunk_sizes,
                                .content = with_contents,
                                .parsed = remote.has_value()};
        FootersStop stop;
        auto footers =
            Interruptible([&] { return ReadFooters(files, parts, num_threads, &stop); },
                          [&] { stop.Stop(); });
        if (remote) (*remote)->KeepFooters(std::move(footers.parsed));
        if (decryption) (*decryption)->Close();
        return footers;
      },
      py::arg("paths"), py::arg("num_threads"), py::arg("contents"),
      py::arg("decryption") = py::none(), py::arg("with_chunk_sizes") = false,
      py::arg("with_contents") = false, py::arg("remote") = py::none());
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
      [](const py::bytes& content) { return ParsePageHeader(BytesOf(content)); },
      py::arg("content"));
  BindBloomFilters(m);
  BindPageIndexes(m);
}

}  // namespace torchparquet
