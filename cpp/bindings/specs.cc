#include "bindings/specs.h"

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
#include "bindings/without_gil.h"
#include "kernels/packing/boundaries.h"
#include "kernels/packing/packer.h"
#include "kernels/shuffle/permutation.h"
#include "kernels/values/transform.h"
#include "kernels/xxhash64.h"
#include "reader/plan/reader_spec.h"
#include "reader/plan/selections.h"
#include "reader/plan/share.h"
#include "reader/window_memory.h"

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

Share MakeShare(const std::shared_ptr<EpochOrder>& order, int64_t rank,
                int64_t world_size, int64_t dealt_rows, int64_t skipped_rows,
                const Int64Array& row_group, const Int64Array& begin,
                const Int64Array& num_rows, const BoolArray& valid,
                const Int64Array& window_rows, const Uint64Array& window_key,
                const Int64Array& window_begin, const Int64Array& window_end,
                bool is_claimed) {
  CheckLengths("a share's chunks",
               {row_group.size(), begin.size(), num_rows.size(), valid.size()});
  CheckLengths("a share's windows", {window_rows.size(), window_key.size(),
                                     window_begin.size(), window_end.size()});
  Share share{.rank = rank,
              .world_size = world_size,
              .order = order,
              .dealt_rows = dealt_rows,
              .skipped_rows = skipped_rows,
              .claims = is_claimed ? std::make_shared<Claims>() : nullptr};
  for (py::ssize_t i = 0; i < row_group.size(); ++i) {
    share.chunks.push_back(order->row_groups->ChunkOf(row_group.at(i), begin.at(i),
                                                      num_rows.at(i), valid.at(i)));
  }
  for (py::ssize_t i = 0; i < window_key.size(); ++i) {
    share.windows.push_back({.num_rows = window_rows.at(i),
                             .key = window_key.at(i),
                             .begin = window_begin.at(i),
                             .end = window_end.at(i)});
  }
  return share;
}

ReaderSpec MakeReaderSpec(
    const std::shared_ptr<DataFiles>& files, Share share, std::vector<Share> beside,
    int64_t batch_rows, const Int64Array& batch_sizes, std::vector<FieldSpec> fields,
    std::vector<ColumnSpec> columns, int64_t row_id_field, int64_t row_valid_field,
    int64_t num_threads, int64_t max_memory_bytes, bool lent_slabs,
    const std::optional<std::shared_ptr<HeldSelections>>& selections,
    bool rows_are_packed) {
  return ReaderSpec({.files = DataFiles::Of(files),
                     .share = std::move(share),
                     .beside = std::move(beside),
                     .selections = HeldSelections::Of(selections),
                     .batch_rows = batch_rows,
                     .batch_sizes = VectorOf(batch_sizes),
                     .fields = std::move(fields),
                     .columns = std::move(columns),
                     .row_id_field = row_id_field,
                     .row_valid_field = row_valid_field,
                     .num_threads = num_threads,
                     .max_memory_bytes = max_memory_bytes,
                     .lent_slabs = lent_slabs,
                     .rows_are_packed = rows_are_packed});
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
      .def(py::init([](int64_t item_bytes, int64_t width, int64_t cell_items,
                       bool has_valid, int64_t valid_items, int64_t num_offsets,
                       bool has_item_valid, double row_bytes, bool is_keyed,
                       int64_t weighs) {
             return FieldSpec{.item_bytes = item_bytes,
                              .width = width,
                              .cell_items = cell_items,
                              .has_valid = has_valid,
                              .valid_items = valid_items,
                              .num_offsets = num_offsets,
                              .has_item_valid = has_item_valid,
                              .row_bytes = row_bytes,
                              .is_keyed = is_keyed,
                              .weighs = weighs};
           }),
           py::kw_only(), py::arg("item_bytes"), py::arg("width"), py::arg("cell_items"),
           py::arg("has_valid"), py::arg("valid_items"), py::arg("num_offsets"),
           py::arg("has_item_valid"), py::arg("row_bytes"), py::arg("is_keyed"),
           py::arg("weighs"));
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
  py::class_<ColumnSpec>(m, "ColumnSpec")
      .def(
          py::init(
              [](std::string path, std::vector<std::string> kinds,
                 const std::string& dtype, int64_t cell_items, int64_t num_offsets,
                 int64_t list_length,
                 std::optional<std::shared_ptr<kernels::Transform>> transform,
                 std::optional<std::shared_ptr<Vocabulary>> vocabulary, int64_t field,
                 int64_t element, bool nulls_are_errors, uint64_t fill_bits,
                 std::optional<uint64_t> default_bits,
                 const std::optional<py::bytes>& default_bytes,
                 std::optional<int64_t> default_items, int64_t unit_nanoseconds,
                 bool missing_is_null, std::vector<std::optional<uint64_t>> file_bits,
                 std::vector<std::string> stored_paths, std::vector<int32_t> path_of_file,
                 const std::optional<PackRequest>& pack, bool lengths_only,
                 bool is_scalar, bool null_rows_are_empty) {
                const auto found = kernels::DtypeOfName(dtype);
                if (!found) throw py::value_error("no such dtype: " + dtype);
                return ColumnSpec{
                    .request = {.path = std::move(path),
                                .kinds = std::move(kinds),
                                .dtype = *found,
                                .unit_nanoseconds = unit_nanoseconds,
                                .cell_items = cell_items,
                                .num_offsets = num_offsets,
                                .list_length = list_length,
                                .pack = pack,
                                .lengths_only = lengths_only,
                                .is_scalar = is_scalar,
                                .null_rows_are_empty = null_rows_are_empty,
                                .transform = std::move(transform).value_or(nullptr),
                                .vocabulary = std::move(vocabulary).value_or(nullptr),
                                .default_bits = default_bits,
                                .default_bytes = TextOf(default_bytes),
                                .default_items = default_items,
                                .missing_is_null = missing_is_null},
                    .stored = {.paths = std::move(stored_paths),
                               .path_of_file = std::move(path_of_file)},
                    .field = field,
                    .element = element,
                    .nulls = nulls_are_errors ? NullPolicy::kError : NullPolicy::kFill,
                    .fill_bits = fill_bits,
                    .file_bits = std::move(file_bits)};
              }),
          py::kw_only(), py::arg("path"), py::arg("kinds"), py::arg("dtype"),
          py::arg("cell_items"), py::arg("num_offsets"), py::arg("list_length"),
          py::arg("transform"), py::arg("vocabulary"), py::arg("field"),
          py::arg("element"), py::arg("nulls_are_errors"), py::arg("fill_bits"),
          py::arg("default_bits"), py::arg("default_bytes"), py::arg("default_items"),
          py::arg("unit_nanoseconds"), py::arg("missing_is_null"), py::arg("file_bits"),
          py::arg("stored_paths"), py::arg("path_of_file"), py::arg("pack"),
          py::arg("lengths_only"), py::arg("is_scalar"), py::arg("null_rows_are_empty"));
  py::class_<RowGroups, std::shared_ptr<RowGroups>>(m, "RowGroups")
      .def(py::init(&MakeRowGroups), py::kw_only(), py::arg("file"), py::arg("in_file"),
           py::arg("first_row"), py::arg("num_sequences"), py::arg("are_selected"));
  py::class_<EpochOrder, std::shared_ptr<EpochOrder>>(m, "EpochOrder")
      .def(py::init(&MakeEpochOrder), py::kw_only(), py::arg("row_groups").none(false),
           py::arg("row_group"), py::arg("begin"), py::arg("num_rows"));
  py::class_<Share>(m, "Share")
      .def(py::init(&MakeShare), py::kw_only(), py::arg("order").none(false),
           py::arg("rank"), py::arg("world_size"), py::arg("dealt_rows"),
           py::arg("skipped_rows"), py::arg("row_group"), py::arg("begin"),
           py::arg("num_rows"), py::arg("valid"), py::arg("window_rows"),
           py::arg("window_key"), py::arg("window_begin"), py::arg("window_end"),
           py::arg("is_claimed"));
  py::class_<ReaderSpec>(m, "ReaderSpec")
      .def(py::init(&MakeReaderSpec), py::kw_only(), py::arg("files").none(false),
           py::arg("share"), py::arg("beside"), py::arg("batch_rows"),
           py::arg("batch_sizes"), py::arg("fields"), py::arg("columns"),
           py::arg("row_id_field"), py::arg("row_valid_field"), py::arg("num_threads"),
           py::arg("max_memory_bytes"), py::arg("lent_slabs"), py::arg("selections"),
           py::arg("rows_are_packed"));
  m.def(
      "window_order",
      [](uint64_t key, int64_t num_rows) {
        py::array_t<uint32_t> rows(num_rows);
        kernels::PermutedRows(key, {rows.mutable_data(), static_cast<size_t>(num_rows)});
        return rows;
      },
      py::arg("key"), py::arg("num_rows"));
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
  m.def("window_row_bytes", &WindowRowBytes, py::arg("fields"), py::arg("batch_rows"));
  m.def("tensor_bytes", &TensorBytes, py::arg("fields"), py::arg("num_rows"));
}

}  // namespace torchparquet
