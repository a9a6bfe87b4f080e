#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/data_files.h"
#include "bindings/module.h"
#include "bindings/without_gil.h"
#include "kernels/packing/boundaries.h"
#include "kernels/packing/packer.h"
#include "kernels/shuffle/permutation.h"
#include "kernels/shuffle/sampled_rows.h"
#include "kernels/values/transform.h"
#include "kernels/xxhash64.h"
#include "reader/memory_plan.h"
#include "reader/plan/reader_spec.h"
#include "reader/plan/selections.h"
#include "reader/plan/share.h"

namespace py = pybind11;

namespace torchparquet {

namespace {

std::optional<std::string> TextOf(const std::optional<py::bytes>& content) {
  if (!content) return std::nullopt;
  return static_cast<std::string>(*content);
}

// Selections with the arrays that they view.
class HeldSelections {
 public:
  HeldSelections(Array<uint8_t> form, Int64Array begin, Uint64Array words,
                 Int64Array num_rows)
      : form_(std::move(form)),
        begin_(std::move(begin)),
        words_(std::move(words)),
        num_rows_(std::move(num_rows)),
        selections_({.form = SpanOf(form_),
                     .begin = SpanOf(begin_),
                     .words = SpanOf(words_),
                     .num_rows = SpanOf(num_rows_)}) {}

  // The selections, which keep the arrays; null for none.
  static std::shared_ptr<const Selections> Of(
      const std::optional<std::shared_ptr<HeldSelections>>& held) {
    if (!held) return nullptr;
    return {*held, &(*held)->selections_};
  }

 private:
  Array<uint8_t> form_;
  Int64Array begin_;
  Uint64Array words_;
  Int64Array num_rows_;
  Selections selections_;
};

void CheckLengths(const std::string& name, std::initializer_list<py::ssize_t> lengths) {
  if (std::ranges::adjacent_find(lengths, std::ranges::not_equal_to()) == lengths.end())
    return;
  throw py::value_error("the arrays of " + name + " differ in length");
}

RowGroups MakeRowGroups(const Int64Array& file, const Int64Array& in_file,
                        const Int64Array& first_row,
                        const std::optional<Int64Array>& num_sequences,
                        bool are_selected) {
  CheckLengths("row groups", {file.size(), in_file.size(), first_row.size(),
                              num_sequences ? num_sequences->size() : file.size()});
  return {
      .file = VectorOf(file),
      .in_file = VectorOf(in_file),
      .first_row = VectorOf(first_row),
      .num_sequences = num_sequences ? VectorOf(*num_sequences) : std::vector<int64_t>(),
      .are_selected = are_selected};
}

EpochOrder MakeEpochOrder(std::shared_ptr<RowGroups> row_groups,
                          const Int64Array& row_group, const Int64Array& begin,
                          const Int64Array& num_rows) {
  CheckLengths("an order", {row_group.size(), begin.size(), num_rows.size()});
  return {.row_groups = std::move(row_groups),
          .row_group = VectorOf(row_group),
          .begin = VectorOf(begin),
          .num_rows = VectorOf(num_rows)};
}

// Adds the chunks of a share beyond those of its order.
void AddChunks(Share& share, const Int64Array& row_group, const Int64Array& begin,
               const Int64Array& num_rows, const BoolArray& valid) {
  CheckLengths("a share's chunks",
               {row_group.size(), begin.size(), num_rows.size(), valid.size()});
  for (py::ssize_t i = 0; i < row_group.size(); ++i) {
    share.chunks.push_back(share.order->row_groups->ChunkOf(row_group.at(i), begin.at(i),
                                                            num_rows.at(i), valid.at(i)));
  }
}

// `orders` are empty, or those of each window.
void AddWindows(Share& share, const Int64Array& num_rows, const Uint64Array& key,
                const Int64Array& begin, const Int64Array& end,
                const std::vector<Uint32Array>& orders) {
  const py::ssize_t num_orders =
      orders.empty() ? key.size() : static_cast<py::ssize_t>(orders.size());
  CheckLengths("a share's windows",
               {num_rows.size(), key.size(), begin.size(), end.size(), num_orders});
  for (py::ssize_t i = 0; i < key.size(); ++i) {
    share.windows.push_back({.num_rows = num_rows.at(i),
                             .key = key.at(i),
                             .begin = begin.at(i),
                             .end = end.at(i)});
    if (orders.empty()) continue;
    share.windows.back().order = std::make_shared<const std::vector<uint32_t>>(
        VectorOf(orders[static_cast<size_t>(i)]));
  }
}

ReaderParts MakeReaderParts(
    const std::shared_ptr<DataFiles>& files, std::vector<FieldSpec> fields,
    std::vector<ColumnSpec> columns,
    const std::optional<std::shared_ptr<HeldSelections>>& selections) {
  return {.files = DataFiles::Of(files),
          .share = {},
          .selections = HeldSelections::Of(selections),
          .fields = std::move(fields),
          .columns = std::move(columns)};
}

kernels::Transform MakeTransform(
    const std::vector<std::tuple<std::string, double, double>>& steps,
    std::optional<std::vector<double>> borders, bool counts_equal, int64_t num_buckets,
    uint64_t seed) {
  using Step = kernels::Transform::Step;
  const auto step = [](const auto& described) -> Step {
    const auto& [kind, first, second] = described;
    if (kind == "clip") return {Step::Kind::kClip, first, second};
    if (kind == "log1p") return {Step::Kind::kLog1p};
    if (kind == "scale") return {Step::Kind::kScale, first, second};
    throw py::value_error("no such step: " + kind);
  };
  kernels::Transform::Parts parts{.borders = std::move(borders),
                                  .counts_equal = counts_equal,
                                  .num_buckets = num_buckets,
                                  .seed = seed};
  std::ranges::transform(steps, std::back_inserter(parts.steps), step);
  return kernels::Transform(std::move(parts));
}

PackRequest MakePackRequest(int64_t length, const std::string& strategy,
                            bool has_separator, int64_t window_documents,
                            int64_t multiple_of, uint64_t separator_bits,
                            uint64_t padding_bits) {
  using Strategy = kernels::Packing::Strategy;
  Strategy found = Strategy::kConcat;
  if (strategy == "split") {
    found = Strategy::kSplit;
  } else if (strategy == "best_fit") {
    found = Strategy::kBestFit;
  } else if (strategy != "concat") {
    throw py::value_error("no such strategy: " + strategy);
  }
  return {.packing = {.length = length,
                      .strategy = found,
                      .has_separator = has_separator,
                      .window_documents = window_documents,
                      .multiple_of = multiple_of},
          .separator_bits = separator_bits,
          .padding_bits = padding_bits};
}

// The number of sequences that documents of these lengths fill.
int64_t NumSequences(const PackRequest& pack, const Int64Array& lengths) {
  return WithoutGil([&] {
    kernels::Packer packer(pack.packing);
    packer.Add(SpanOf(lengths));
    packer.Finish();
    return packer.num_sequences();
  });
}

// The marks of sequences, `[B, L]`.
kernels::TokenMarks TokenMarksOf(const Array<uint8_t>& marks) {
  if (marks.ndim() != 2 || marks.shape(1) == 0) {
    throw py::value_error("marks of tokens are those of sequences");
  }
  return {.marks = SpanOf(marks), .length = marks.shape(1)};
}

std::pair<py::array_t<int32_t>, py::array_t<int32_t>> DocumentsOf(
    const Array<uint8_t>& marks) {
  const kernels::TokenMarks tokens = TokenMarksOf(marks);
  const std::vector<py::ssize_t> shape{marks.shape(0), marks.shape(1)};
  py::array_t<int32_t> document(shape);
  py::array_t<int32_t> position(shape);
  int32_t* documents = document.mutable_data();
  int32_t* positions = position.mutable_data();
  WithoutGil([&] { kernels::WriteDocuments(tokens, documents, positions); });
  return {std::move(document), std::move(position)};
}

py::array_t<int32_t> CumulativeLengthsOf(const Array<uint8_t>& marks) {
  return ArrayOf(kernels::CumulativeLengths(TokenMarksOf(marks)));
}

}  // namespace

void BindSpecs(py::module_& m) {
  py::class_<HeldSelections, std::shared_ptr<HeldSelections>>(m, "Selections")
      .def(py::init<Array<uint8_t>, Int64Array, Uint64Array, Int64Array>(), py::kw_only(),
           py::arg("form"), py::arg("begin"), py::arg("words"), py::arg("num_rows"));
  py::class_<FieldSpec>(m, "FieldSpec")
      .def(py::init<>())
      .def_readwrite("item_bytes", &FieldSpec::item_bytes)
      .def_readwrite("width", &FieldSpec::width)
      .def_readwrite("cell_items", &FieldSpec::cell_items)
      .def_readwrite("has_valid", &FieldSpec::has_valid)
      .def_readwrite("valid_items", &FieldSpec::valid_items)
      .def_readwrite("num_offsets", &FieldSpec::num_offsets)
      .def_readwrite("has_item_valid", &FieldSpec::has_item_valid)
      .def_readwrite("row_bytes", &FieldSpec::row_bytes)
      .def_readwrite("is_keyed", &FieldSpec::is_keyed)
      .def_readwrite("weighs", &FieldSpec::weighs);
  py::class_<kernels::Transform, std::shared_ptr<kernels::Transform>>(m, "Transform")
      .def(py::init(&MakeTransform), py::kw_only(), py::arg("steps"), py::arg("borders"),
           py::arg("counts_equal"), py::arg("num_buckets"), py::arg("seed"))
      // Of the bits of int64 or float64.
      .def(
          "apply",
          [](const kernels::Transform& transform, const Uint64Array& bits) {
            py::array_t<uint64_t> words(bits.size());
            const std::span<uint64_t> out(words.mutable_data(),
                                          static_cast<size_t>(words.size()));
            std::ranges::copy(SpanOf(bits), out.begin());
            WithoutGil([&] { transform.Apply(out); });
            return words;
          },
          py::arg("bits"))
      .def(
          "bucket_of",
          [](const kernels::Transform& transform, const py::bytes& value) {
            const std::string_view text = value;
            // Bytes are held as characters.
            return transform.BucketOf(
                {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
          },
          py::arg("value"));
  py::class_<Vocabulary, std::shared_ptr<Vocabulary>>(m, "Vocabulary")
      .def(py::init([](const std::vector<py::bytes>& words, int64_t unknown_code) {
             return std::make_shared<Vocabulary>(
                 std::vector<std::string>(words.begin(), words.end()), unknown_code);
           }),
           py::arg("words"), py::arg("unknown_code"))
      .def(py::init([](std::shared_ptr<kernels::Transform> hash) {
             return std::make_shared<Vocabulary>(std::move(hash));
           }),
           py::arg("hash"));
  py::class_<PackRequest>(m, "PackRequest")
      .def(py::init(&MakePackRequest), py::kw_only(), py::arg("length"),
           py::arg("strategy"), py::arg("has_separator"), py::arg("window_documents"),
           py::arg("multiple_of"), py::arg("separator_bits"), py::arg("padding_bits"))
      .def("num_sequences", &NumSequences, py::arg("lengths"));
  py::class_<ColumnRequest>(m, "ColumnRequest")
      .def(py::init<>())
      .def_readwrite("path", &ColumnRequest::path)
      .def_readwrite("kinds", &ColumnRequest::kinds)
      .def_property(
          "dtype", [](const ColumnRequest& request) { return DtypeName(request.dtype); },
          [](ColumnRequest& request, const std::string& dtype) {
            const auto found = kernels::DtypeOfName(dtype);
            if (!found) throw py::value_error("no such dtype: " + dtype);
            request.dtype = *found;
          })
      .def_readwrite("unit_nanoseconds", &ColumnRequest::unit_nanoseconds)
      .def_readwrite("cell_items", &ColumnRequest::cell_items)
      .def_readwrite("num_offsets", &ColumnRequest::num_offsets)
      .def_readwrite("list_length", &ColumnRequest::list_length)
      .def_readwrite("pack", &ColumnRequest::pack)
      .def_readwrite("lengths_only", &ColumnRequest::lengths_only)
      .def_readwrite("is_scalar", &ColumnRequest::is_scalar)
      .def_readwrite("null_rows_are_empty", &ColumnRequest::null_rows_are_empty)
      .def_readwrite("transform", &ColumnRequest::transform)
      .def_readwrite("vocabulary", &ColumnRequest::vocabulary)
      .def_readwrite("default_bits", &ColumnRequest::default_bits)
      .def_property(
          "default_bytes",
          [](const ColumnRequest& request) {
            return request.default_bytes
                       ? std::optional<py::bytes>(*request.default_bytes)
                       : std::nullopt;
          },
          [](ColumnRequest& request, const std::optional<py::bytes>& content) {
            request.default_bytes = TextOf(content);
          })
      .def_readwrite("default_items", &ColumnRequest::default_items)
      .def_readwrite("missing_is_null", &ColumnRequest::missing_is_null);
  py::class_<StoredColumn>(m, "StoredColumn")
      .def(py::init<>())
      .def_readwrite("paths", &StoredColumn::paths)
      .def_readwrite("path_of_file", &StoredColumn::path_of_file);
  py::class_<ColumnSpec>(m, "ColumnSpec")
      .def(py::init<>())
      .def_readwrite("request", &ColumnSpec::request)
      .def_readwrite("stored", &ColumnSpec::stored)
      .def_readwrite("field", &ColumnSpec::field)
      .def_readwrite("element", &ColumnSpec::element)
      .def_property(
          "nulls_are_errors",
          [](const ColumnSpec& spec) { return spec.nulls == NullPolicy::kError; },
          [](ColumnSpec& spec, bool are_errors) {
            spec.nulls = are_errors ? NullPolicy::kError : NullPolicy::kFill;
          })
      .def_readwrite("fill_bits", &ColumnSpec::fill_bits)
      .def_readwrite("file_bits", &ColumnSpec::file_bits);
  py::class_<RowGroups, std::shared_ptr<RowGroups>>(m, "RowGroups")
      .def(py::init(&MakeRowGroups), py::kw_only(), py::arg("file"), py::arg("in_file"),
           py::arg("first_row"), py::arg("num_sequences"), py::arg("are_selected"));
  py::class_<EpochOrder, std::shared_ptr<EpochOrder>>(m, "EpochOrder")
      .def(py::init(&MakeEpochOrder), py::kw_only(), py::arg("row_groups").none(false),
           py::arg("row_group"), py::arg("begin"), py::arg("num_rows"));
  py::class_<Share>(m, "Share")
      .def(py::init([](const std::shared_ptr<EpochOrder>& order) {
             return Share{.order = order};
           }),
           py::arg("order").none(false))
      .def_readwrite("rank", &Share::rank)
      .def_readwrite("world_size", &Share::world_size)
      .def_readwrite("dealt_rows", &Share::dealt_rows)
      .def_readwrite("skipped_rows", &Share::skipped_rows)
      .def_property(
          "is_claimed", [](const Share& share) { return share.claims != nullptr; },
          [](Share& share, bool is_claimed) {
            share.claims = is_claimed ? std::make_shared<Claims>() : nullptr;
          })
      .def("add_chunks", &AddChunks, py::kw_only(), py::arg("row_group"),
           py::arg("begin"), py::arg("num_rows"), py::arg("valid"))
      .def("add_windows", &AddWindows, py::kw_only(), py::arg("num_rows"), py::arg("key"),
           py::arg("begin"), py::arg("end"), py::arg("orders"));
  // Made once for a data set, and copied for each reader.
  py::class_<ReaderParts>(m, "ReaderParts")
      .def(py::init(&MakeReaderParts), py::kw_only(), py::arg("files").none(false),
           py::arg("fields"), py::arg("columns"), py::arg("selections"))
      .def(py::init<const ReaderParts&>(), py::arg("parts"))
      .def_readwrite("share", &ReaderParts::share)
      .def_readwrite("beside", &ReaderParts::beside)
      .def_readwrite("batch_rows", &ReaderParts::batch_rows)
      .def_property(
          "batch_sizes",
          [](const ReaderParts& parts) { return ArrayOf(parts.batch_sizes); },
          [](ReaderParts& parts, const Int64Array& sizes) {
            parts.batch_sizes = VectorOf(sizes);
          })
      .def_readwrite("row_id_field", &ReaderParts::row_id_field)
      .def_readwrite("row_valid_field", &ReaderParts::row_valid_field)
      .def_readwrite("num_threads", &ReaderParts::num_threads)
      .def_readwrite("max_memory_bytes", &ReaderParts::max_memory_bytes)
      .def_readwrite("lent_slabs", &ReaderParts::lent_slabs)
      .def_readwrite("rows_are_packed", &ReaderParts::rows_are_packed);
  m.def(
      "window_order",
      [](uint64_t key, int64_t num_rows) {
        py::array_t<uint32_t> rows(num_rows);
        const std::span out(rows.mutable_data(), static_cast<size_t>(num_rows));
        WithoutGil([&] { kernels::PermutedRows(key, out); });
        return rows;
      },
      py::arg("key"), py::arg("num_rows"));
  m.def(
      "mark_sampled_rows",
      [](const Int64Array& marked, const Int64Array& samples,
         const Int64Array& first_rows) {
        if (first_rows.size() == 0) throw py::value_error("there is no row group");
        py::array_t<uint32_t> places(samples.size());
        uint32_t* out = places.mutable_data();
        const kernels::SampledRows found = WithoutGil([&] {
          return kernels::MarkSampledRows(SpanOf(marked), SpanOf(samples),
                                          SpanOf(first_rows), out);
        });
        return py::make_tuple(ArrayOf(found.row_groups), ArrayOf(found.words), places);
      },
      py::arg("marked"), py::arg("samples"), py::arg("first_rows"));
  m.def(
      "sort_random_keys",
      [](const Uint64Array& keys) {
        py::array_t<uint32_t> order(keys.size());
        uint32_t* out = order.mutable_data();
        WithoutGil([&] { kernels::SortRandomKeys(SpanOf(keys), out); });
        return order;
      },
      py::arg("keys"));
  m.def(
      "hash_bytes",
      [](const Array<uint8_t>& bytes, const Int64Array& ends) {
        const std::span<const uint8_t> all = SpanOf(bytes);
        const py::ssize_t num_values = std::max<py::ssize_t>(0, ends.size() - 1);
        py::array_t<uint64_t> hashes(num_values);
        for (py::ssize_t i = 0; i < num_values; ++i) {
          const int64_t begin = ends.at(i);
          const int64_t end = ends.at(i + 1);
          if (begin < 0 || end < begin || end > std::ssize(all)) {
            throw py::value_error("the ends of values are not ascending places of bytes");
          }
          hashes.mutable_at(i) = kernels::XxHash64(
              all.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
        }
        return hashes;
      },
      py::arg("bytes"), py::arg("ends"));
  m.def("documents_of", &DocumentsOf, py::arg("marks"));
  m.def("cumulative_lengths", &CumulativeLengthsOf, py::arg("marks"));
  m.def("window_row_bytes", &WindowRowBytes, py::arg("fields"), py::arg("batch_rows"),
        py::arg("has_orders") = false);
  m.def("tensor_bytes", &TensorBytes, py::arg("fields"), py::arg("num_rows"));
}

}  // namespace torchparquet
