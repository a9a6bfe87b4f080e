#include "kernels/shuffle/records.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>
#include <pybind11/typing.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_pages.h"
#include "batches/slab_pool.h"
#include "bindings/arrays.h"
#include "bindings/batch_objects.h"
#include "bindings/module.h"
#include "bindings/without_gil.h"
#include "columns/column_reader.h"
#include "kernels/packing/packer.h"
#include "kernels/packing/sequences.h"
#include "kernels/shuffle/keyed_order.h"
#include "kernels/values/conversion.h"
#include "remote/disk_cache/cache_folder.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

template <typename T>
T* PointerOf(uint64_t address) {
  // The address of a tensor's memory, as `data_ptr` tells it.
  return reinterpret_cast<T*>(address);  // NOLINT(performance-no-int-to-ptr)
}

std::vector<kernels::RecordColumn> ColumnsOf(const Uint64Array& addresses,
                                             const Int64Array& bytes,
                                             const Int64Array& offsets) {
  if (addresses.size() != bytes.size() || bytes.size() != offsets.size()) {
    throw py::value_error("the arrays of columns differ in length");
  }
  std::vector<kernels::RecordColumn> columns;
  for (py::ssize_t i = 0; i < bytes.size(); ++i) {
    columns.push_back({PointerOf<uint8_t>(addresses.at(i)), bytes.at(i), offsets.at(i)});
  }
  return columns;
}

// The bytes of a file, which the array unmaps when it dies. Pages are read one by one, as
// rows are. Python's mmap would keep a second descriptor open for each file.
py::array_t<uint8_t> MapBytes(int descriptor, size_t num_bytes) {
  void* bytes = mmap(nullptr, num_bytes, PROT_READ, MAP_SHARED, descriptor, 0);
  if (bytes == MAP_FAILED) {
    PyErr_SetFromErrno(PyExc_OSError);
    throw py::error_already_set();
  }
  madvise(bytes, num_bytes, MADV_RANDOM);
  struct Mapping {
    void* bytes;
    size_t num_bytes;
  };
  const py::capsule owner(new Mapping{bytes, num_bytes}, [](void* mapping) {
    auto* mapped = static_cast<Mapping*>(mapping);
    munmap(mapped->bytes, mapped->num_bytes);
    delete mapped;
  });
  return py::array_t<uint8_t>(static_cast<py::ssize_t>(num_bytes),
                              static_cast<const uint8_t*>(bytes), owner);
}

// Packs documents whose values are in arrays, as a reader packs those of a row group.
class DocumentPacker {
 public:
  explicit DocumentPacker(const PackRequest& pack)
      : packing_(pack.packing), packer_(pack.packing) {}

  int64_t num_sequences() const { return packer_.num_sequences(); }
  void Add(const Int64Array& lengths) { packer_.Add(SpanOf(lengths)); }
  void Finish() { packer_.Finish(); }

  // Forgets the complete sequences; no later one has a value before the one returned.
  int64_t Clear() {
    packer_.Clear();
    return packer_.first_open_value();
  }

  // Writes the complete sequences of a column, `[S, L]`, and their marks. `values` are
  // those of the documents from `first_value` on.
  void Write(const PackRequest& pack, const py::array& values, int64_t first_value,
             py::array out, std::optional<py::array> marks) const {
    const auto is_shape = [this](const py::array& array) {
      return array.ndim() == 2 && array.shape(0) == num_sequences() &&
             array.shape(1) == packing_.length && (array.flags() & py::array::c_style);
    };
    if (!is_shape(out) || values.itemsize() != out.itemsize() ||
        !(values.flags() & py::array::c_style) ||
        (marks && (!is_shape(*marks) || marks->itemsize() != 1))) {
      throw py::value_error("arrays of sequences have other shapes or items");
    }
    auto* mark = marks ? static_cast<uint8_t*>(marks->mutable_data()) : nullptr;
    kernels::ForItemBytes(out.itemsize(), [&]<typename Out>(Out) {
      const std::span<const Out> held(static_cast<const Out*>(values.data()),
                                      static_cast<size_t>(values.size()));
      auto* to = static_cast<Out*>(out.mutable_data());
      WithoutGil([&] { WriteAll<Out>(pack, held, first_value, to, mark); });
    });
  }

 private:
  template <typename Out>
  void WriteAll(const PackRequest& pack, std::span<const Out> held, int64_t first_value,
                Out* to, uint8_t* mark) const {
    const kernels::TokensBeside<Out> beside{
        .separator = static_cast<Out>(pack.separator_bits),
        .padding = static_cast<Out>(pack.padding_bits)};
    const auto copy = [&](int64_t begin, int64_t count, Out* out) {
      const int64_t at = begin - first_value;
      if (at < 0 || count > std::ssize(held) - at) {
        throw py::value_error("the values of a document are not held");
      }
      std::copy_n(held.data() + at, count, out);
    };
    for (int64_t i = 0; i < num_sequences(); ++i) {
      kernels::WriteSequence<Out>(packer_.sequence(i), packing_, beside, copy, to, mark);
      to += packing_.length;
      if (mark != nullptr) mark += packing_.length;
    }
  }

  const kernels::Packing packing_;
  kernels::Packer packer_;
};

}  // namespace

void BindRecords(py::module_& m) {
  using kernels::RowItems;
  py::class_<RowItems>(m, "RowItems")
      .def(py::init([](uint64_t address, int64_t bytes, uint64_t counts) {
             return RowItems{PointerOf<uint8_t>(address), bytes,
                             PointerOf<const int32_t>(counts)};
           }),
           py::arg("address"), py::arg("bytes"), py::arg("counts"));
  py::class_<SlabPool, std::shared_ptr<SlabPool>>(m, "SlabPool")
      .def(py::init([](int64_t slab_bytes, int64_t kept_bytes) {
             return SlabPool::Make(slab_bytes, kept_bytes);
           }),
           py::arg("slab_bytes"), py::arg("kept_bytes"))
      .def(
          "acquire",
          [](SlabPool& pool, const std::vector<SlabPiece>& pieces)
              -> py::typing::Tuple<py::object, py::ellipsis> {
            return MakePieces(pool.Acquire(), pieces, 0);
          },
          py::arg("pieces"));
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
      [](const Uint64Array& addresses, const Int64Array& bytes, const Int64Array& offsets,
         int64_t num_rows, int64_t record_bytes, uint64_t records) {
        const auto columns = ColumnsOf(addresses, bytes, offsets);
        WithoutGil([&] {
          kernels::PackRecords(columns, num_rows, record_bytes,
                               PointerOf<uint8_t>(records));
        });
      },
      py::arg("addresses"), py::arg("bytes"), py::arg("offsets"), py::arg("num_rows"),
      py::arg("record_bytes"), py::arg("records"));
  m.def(
      "gather_records",
      [](const Uint64Array& records, int64_t record_bytes, const Uint64Array& addresses,
         const Int64Array& bytes, const Int64Array& offsets) {
        const auto columns = ColumnsOf(addresses, bytes, offsets);
        WithoutGil([&, of_rows = SpanOf(records)] {
          kernels::GatherRecords(of_rows, record_bytes, columns);
        });
      },
      py::arg("records"), py::arg("record_bytes"), py::arg("addresses"), py::arg("bytes"),
      py::arg("offsets"));
  m.def(
      "locate_records",
      [](const Int64Array& rows, const Int64Array& firsts, const Uint64Array& bases,
         int64_t record_bytes) {
        py::array_t<int64_t> pieces(rows.size());
        py::array_t<uint64_t> records(rows.size());
        WithoutGil(
            [&, of_pieces = pieces.mutable_data(), of_rows = records.mutable_data()] {
              kernels::LocateRecords(SpanOf(rows), SpanOf(firsts), SpanOf(bases),
                                     record_bytes, of_pieces, of_rows);
            });
        return std::pair(pieces, records);
      },
      py::arg("rows"), py::arg("firsts"), py::arg("bases"), py::arg("record_bytes"));
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
  m.def("map_bytes", &MapBytes, py::arg("descriptor"), py::arg("num_bytes"));
  m.def(
      "read_ahead",
      [](const Uint64Array& addresses, const Int64Array& num_bytes) {
        if (addresses.size() != num_bytes.size()) {
          throw py::value_error("ranges have an address and a size each");
        }
        WithoutGil([&, of = SpanOf(addresses), sizes = SpanOf(num_bytes)] {
          ReadAhead(of, sizes);
        });
      },
      py::arg("addresses"), py::arg("num_bytes"));
  py::class_<DocumentPacker>(m, "DocumentPacker")
      .def(py::init<const PackRequest&>(), py::arg("pack"))
      .def_property_readonly("num_sequences", &DocumentPacker::num_sequences)
      .def("add", &DocumentPacker::Add, py::arg("lengths"))
      .def("finish", &DocumentPacker::Finish)
      .def("clear", &DocumentPacker::Clear)
      .def("write", &DocumentPacker::Write, py::arg("pack"), py::arg("values"),
           py::arg("first_value"), py::arg("out"), py::arg("marks"));
  m.def(
      "mark_cache_folder", [](const std::string& path) { CacheFolder{path}; },
      py::arg("path"));
}

}  // namespace torchparquet
