#pragma once

#include <pybind11/pybind11.h>

namespace torchparquet {

// The parts of the module.

// Makes every torchparquet::Error that leaves the extension the Python exception of
// its kind: those of torchparquet.errors, or Python's own.
void RegisterExceptions();

// Adds the keys of a data set's files, made of pyarrow's decryption properties.
void BindDecryption(pybind11::module_& m);
// Adds the files of stores.
void BindRemoteStore(pybind11::module_& m);
// Adds the files of a data set.
void BindDataFiles(pybind11::module_& m);
// Adds footers, which are read here, and page headers, which are parsed.
void BindFooters(pybind11::module_& m);
// Adds the functions of the ledger of epochs, which lies in an array.
void BindEpochLedger(pybind11::module_& m);
// Adds what a reader is told of the tensors of a batch, and of the columns for them.
void BindSpecs(pybind11::module_& m);
// Adds the reader of batches, the memory that it hands out, and what it tells of its
// work.
void BindReader(pybind11::module_& m);
// Adds the order of all rows by a key, rows as records, and documents as sequences.
void BindRecords(pybind11::module_& m);

}  // namespace torchparquet
