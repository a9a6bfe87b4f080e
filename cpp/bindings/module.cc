// The extension torchparquet._impl._core: the core's classes as Python sees them.

#include "bindings/module.h"

#include <string>

#include "base/errors.h"
#include "bindings/without_gil.h"
#include "bridge/loaded_library.h"
#include "kernels/instructions.h"
#include "pages/libdeflate.h"
#include "reader/gloo_threads.h"

// Python may run without the GIL beside this: README.md tells why that is safe.
PYBIND11_MODULE(_core, m, pybind11::mod_gil_not_used()) {
  using namespace torchparquet;
  RegisterExceptions();
  kernels::ChosenInstructions();  // fails here rather than in the middle of reading
  m.def("instructions",
        [] { return std::string(kernels::NameOf(kernels::ChosenInstructions())); });
  m.def(
      "load_arrow",
      [](const std::string& path) {
        try {
          LoadArrowLibrary(path);
        } catch (const Error& error) {
          throw pybind11::import_error(error.what());
        }
        return std::string(Arrow().release());
      },
      pybind11::arg("path"));
  m.def("offer_libdeflate", &OfferLibdeflate, pybind11::arg("path"));
  m.def("await_gloo_threads", [] { WithoutGil([] { AwaitGlooThreads(); }); });
  BindDecryption(m);
  BindRemoteStore(m);
  BindDataFiles(m);
  BindFooters(m);
  BindEpochLedger(m);
  BindSpecs(m);
  BindReader(m);
  BindRecords(m);
}
