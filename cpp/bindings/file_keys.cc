#include "bindings/file_keys.h"

#include <pybind11/stl.h>

#include <cstddef>

namespace py = pybind11;

namespace torchparquet {
namespace {

// As in _decryption.pyx: a pointer to a shared pointer that the capsule owns.
constexpr const char* kCapsuleName = "torchparquet.FileDecryptionProperties";

Decryption::Properties PropertiesIn(const std::optional<py::capsule>& capsule) {
  if (!capsule) return nullptr;
  void* held = PyCapsule_GetPointer(capsule->ptr(), kCapsuleName);
  if (held == nullptr) throw py::error_already_set();
  return *static_cast<const Decryption::Properties*>(held);
}

}  // namespace

void AddKeys(const std::optional<std::shared_ptr<Decryption>>& decryption,
             std::vector<PlannedFile>* files) {
  if (!decryption) return;
  if ((*decryption)->num_files() != files->size()) {
    throw py::value_error("files and their keys differ in number");
  }
  for (size_t i = 0; i < files->size(); ++i) {
    (*files)[i].decryption = (*decryption)->of_file(i);
  }
}

void BindDecryption(py::module_& m) {
  py::class_<Decryption, std::shared_ptr<Decryption>>(m, "Decryption")
      .def(py::init([](const std::vector<std::optional<py::capsule>>& of_files) {
             std::vector<Decryption::Properties> properties;
             properties.reserve(of_files.size());
             for (const auto& capsule : of_files) {
               properties.push_back(PropertiesIn(capsule));
             }
             return std::make_shared<Decryption>(properties);
           }),
           py::arg("of_files"));
}

}  // namespace torchparquet
