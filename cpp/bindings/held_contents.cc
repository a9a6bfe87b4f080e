#include "bindings/held_contents.h"

#include <cstdint>

namespace py = pybind11;

namespace torchparquet {

HeldContents::HeldContents(const std::vector<py::buffer>& contents) {
  views_.reserve(contents.size());
  for (const py::buffer& content : contents) {
    auto view = std::make_unique<Py_buffer>();
    if (PyObject_GetBuffer(content.ptr(), view.get(), PyBUF_SIMPLE) != 0) {
      throw py::error_already_set();
    }
    views_.emplace_back(view.release());
  }
}

void HeldContents::AddTo(std::vector<PlannedFile>* files) const {
  if (views_.empty()) return;
  if (views_.size() != files->size()) {
    throw py::value_error("files and their contents differ in number");
  }
  for (size_t i = 0; i < views_.size(); ++i) {
    (*files)[i].memory.emplace(static_cast<const uint8_t*>(views_[i]->buf),
                               static_cast<size_t>(views_[i]->len));
  }
}

void HeldContents::Release::operator()(Py_buffer* view) const {
  PyBuffer_Release(view);
  delete view;
}

}  // namespace torchparquet
