#include "bindings/batch_objects.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "kernels/values/conversion.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

// The memory at `data`, as an array that ends the ownership when its last view dies.
template <typename Owner>
py::array ToArray(Owner owner, std::span<const uint8_t> bytes, const py::dtype& dtype) {
  auto kept = std::make_unique<Owner>(std::move(owner));
  const py::capsule capsule(kept.get(),
                            [](void* pointer) { delete static_cast<Owner*>(pointer); });
  static_cast<void>(kept.release());
  return {dtype, std::ssize(bytes) / dtype.itemsize(), bytes.data(), capsule};
}

py::array ToArray(SinkPool::Lease lease, const py::dtype& dtype) {
  const std::span<const uint8_t> bytes = lease->bytes();
  return ToArray(std::move(lease), bytes, dtype);
}

std::string ArrayDtype(kernels::Dtype dtype) {
  switch (dtype) {
    case kernels::Dtype::kBFloat16:
    case kernels::Dtype::kUInt16:
    case kernels::Dtype::kUInt32:
    case kernels::Dtype::kUInt64:
      return "uint8";
    default:
      return std::string(kernels::DtypeName(dtype));
  }
}

// A piece of a slab as a tensor of one dimension.
struct OwnedPiece {
  dlpack::ManagedTensor tensor;
  int64_t num_items;
  std::shared_ptr<SlabPool::Slab> slab;
};

void FreePiece(dlpack::ManagedTensor* tensor) {
  delete static_cast<OwnedPiece*>(tensor->owner);
}

void FreeUntaken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, dlpack::kCapsuleName) == 0) return;
  FreePiece(static_cast<dlpack::ManagedTensor*>(
      PyCapsule_GetPointer(capsule, dlpack::kCapsuleName)));
}

py::object MakePiece(const std::shared_ptr<SlabPool::Slab>& slab, const SlabPiece& piece,
                     int64_t num_rows) {
  auto owned = std::make_unique<OwnedPiece>();
  owned->num_items =
      (piece.last + num_rows * piece.row_bytes - piece.begin) / (piece.dtype.bits / 8);
  owned->tensor = {.tensor = {.data = slab->data() + piece.begin,
                              .device = {},
                              .num_dimensions = 1,
                              .dtype = piece.dtype,
                              .shape = &owned->num_items},
                   .owner = owned.get(),
                   .deleter = &FreePiece};
  owned->slab = slab;
  PyObject* capsule = PyCapsule_New(&owned->tensor, dlpack::kCapsuleName, &FreeUntaken);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(owned.release());
  return py::reinterpret_steal<py::object>(capsule);
}

py::object MakeMemory(BatchMemory memory, const std::vector<SlabPiece>& pieces,
                      int64_t num_rows) {
  if (memory.lent_token >= 0) return py::int_(memory.lent_token);
  return MakePieces(std::move(memory.slab), pieces, num_rows);
}

}  // namespace

py::tuple MakePieces(SlabPool::Slab slab, const std::vector<SlabPiece>& pieces,
                     int64_t num_rows) {
  const auto owned = std::make_shared<SlabPool::Slab>(std::move(slab));
  py::tuple made(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    made[i] = MakePiece(owned, pieces[i], num_rows);
  }
  return made;
}

SlabPiece MakeSlabPiece(const std::string& dtype, int64_t begin, int64_t last,
                        int64_t row_bytes) {
  using dlpack::TypeCode;
  static const std::map<std::string, dlpack::DataType> kDtypes{
      {"bool", {TypeCode::kBool, 8}},      {"uint8", {TypeCode::kUInt, 8}},
      {"int8", {TypeCode::kInt, 8}},       {"int16", {TypeCode::kInt, 16}},
      {"int32", {TypeCode::kInt, 32}},     {"int64", {TypeCode::kInt, 64}},
      {"float16", {TypeCode::kFloat, 16}}, {"bfloat16", {TypeCode::kBFloat, 16}},
      {"float32", {TypeCode::kFloat, 32}}, {"float64", {TypeCode::kFloat, 64}}};
  return {kDtypes.at(dtype), begin, last, row_bytes};
}

BatchObjects::BatchObjects(const ReaderSpec& spec) {
  for (size_t field = 0; field < spec.fields.size(); ++field) {
    if (spec.fields[field].num_offsets == 0) continue;
    const auto column =
        std::ranges::find(spec.columns, static_cast<int64_t>(field), &ColumnSpec::field);
    const bool has_column = column != spec.columns.end();
    forms_.push_back({py::dtype(has_column ? ArrayDtype(column->request.dtype) : "uint8"),
                      spec.fields[field].has_item_valid});
  }
}

ItemsObject BatchObjects::MakeItems(JaggedItems items, const ItemsForm& form) const {
  py::list starts;
  for (SinkPool::Lease& level : items.starts) {
    starts.append(ToArray(std::move(level), offset_));
  }
  py::object valid = py::none();
  if (form.has_valid) valid = ToArray(std::move(items.valid), valid_);
  return py::make_tuple(std::move(starts), ToArray(std::move(items.values), form.dtype),
                        std::move(valid));
}

RunObject BatchObjects::Make(std::vector<BatchRing::TakeResult> taken,
                             const std::vector<SlabPiece>& pieces) const {
  const int64_t num_rows = taken.front().num_rows;
  py::list items;
  for (size_t i = 0; i < taken.front().items.size(); ++i) {
    items.append(MakeItems(std::move(taken.front().items[i]), forms_[i]));
  }
  py::list memories(taken.size());
  for (size_t i = 0; i < taken.size(); ++i) {
    memories[i] = MakeMemory(std::move(taken[i].memory), pieces, num_rows);
  }
  return py::make_tuple(std::move(memories), num_rows, std::move(items));
}

}  // namespace torchparquet
