#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

#include "files/parquet_file.h"

namespace torchparquet {

// The bytes of files in memory, as Python objects with the buffer protocol hold them.
// They are neither moved nor freed while this lives. Made and destroyed with the GIL.
class HeldContents {
 public:
  // Throws BufferError for what has no contiguous bytes.
  explicit HeldContents(const std::vector<pybind11::buffer>& contents);

  // Gives each file its content; none has one where there are none. Throws ValueError
  // for another number of files.
  void AddTo(std::vector<PlannedFile>* files) const;

 private:
  struct Release {
    void operator()(Py_buffer* view) const;
  };

  std::vector<std::unique_ptr<Py_buffer, Release>> views_;
};

}  // namespace torchparquet
