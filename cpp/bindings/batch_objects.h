#pragma once

#include <pybind11/numpy.h>
#include <pybind11/typing.h>

#include <cstdint>
#include <string>
#include <vector>

#include "batches/batch_ring.h"
#include "batches/jagged.h"
#include "reader/plan/reader_spec.h"

namespace torchparquet {

namespace dlpack {

// The structs of DLPack, the interface by which libraries give each other tensors without
// a copy, as they were before its version 1, which every torch takes. A capsule of this
// name owns a ManagedTensor, until its taker renames it.

inline constexpr const char* kCapsuleName = "dltensor";

enum class DeviceType : int32_t { kCpu = 1 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t id = 0;
};

enum class TypeCode : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBFloat = 4, kBool = 6 };

struct DataType {
  TypeCode code = TypeCode::kUInt;
  uint8_t bits = 8;
  uint16_t lanes = 1;
};

struct Tensor {
  void* data = nullptr;
  Device device;
  int32_t num_dimensions = 0;
  DataType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;  // null: contiguous
  uint64_t offset_bytes = 0;
};

struct ManagedTensor {
  Tensor tensor;
  void* owner = nullptr;
  // Frees this struct and what it leads to, on any thread.
  void (*deleter)(ManagedTensor*) = nullptr;
};

}  // namespace dlpack

// A tensor that torch makes of a part of a slab: of the items from the byte `begin` on,
// up to `row_bytes` for each row after the byte `last`.
struct SlabPiece {
  dlpack::DataType dtype;
  int64_t begin = 0;
  int64_t last = 0;
  int64_t row_bytes = 0;
};

// Throws for a dtype that not every torch takes.
SlabPiece MakeSlabPiece(const std::string& dtype, int64_t begin, int64_t last,
                        int64_t row_bytes);

// The pieces of a slab of `num_rows` rows as capsules of DLPack, which own it together.
pybind11::tuple MakePieces(SlabPool::Slab slab, const std::vector<SlabPiece>& pieces,
                           int64_t num_rows);

// Batches as Python receives them: the pieces of each slab (capsules of DLPack) or the
// token of a lent one, their number of rows and, for each field of variable length of the
// only batch, the offsets of all lists but the outermost, the values, and their mask
// (None if no mask is wanted).
using ItemsObject =
    pybind11::typing::Tuple<pybind11::typing::List<pybind11::array_t<int64_t>>,
                            pybind11::array, pybind11::typing::Optional<pybind11::array>>;
using RunObject =
    pybind11::typing::Tuple<pybind11::typing::List<pybind11::object>, pybind11::int_,
                            pybind11::typing::List<ItemsObject>>;

// Makes them of what a reader has taken. Capsules and arrays own their memory, which goes
// back to its pool when the last view of it dies.
class BatchObjects {
 public:
  explicit BatchObjects(const ReaderSpec& spec);

  // Of batches of as many rows; several have no field of variable length.
  RunObject Make(std::vector<BatchRing::TakeResult> taken,
                 const std::vector<SlabPiece>& pieces) const;

 private:
  // The type of the items of a field of variable length.
  struct ItemsForm {
    pybind11::dtype dtype;  // uint8 if not every torch takes the dtype from NumPy
    bool has_valid;
  };

  ItemsObject MakeItems(JaggedItems items, const ItemsForm& form) const;

  std::vector<ItemsForm> forms_;  // by field of variable length
  const pybind11::dtype offset_ = pybind11::dtype::of<int64_t>();
  const pybind11::dtype valid_ = pybind11::dtype::of<bool>();
};

}  // namespace torchparquet
