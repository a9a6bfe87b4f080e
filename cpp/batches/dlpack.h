#pragma once

#include <cstdint>

namespace torchparquet::dlpack {

// The structs of DLPack, the interface by which libraries give each other tensors without
// a copy, as far as we fill them in: https://github.com/dmlc/dlpack, of before version 1,
// which every torch takes. A capsule of this name owns one, until its taker renames it.

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

}  // namespace torchparquet::dlpack
