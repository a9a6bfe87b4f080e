#include "bindings/remote_store.h"

#include <pybind11/stl.h>
#include <pybind11/typing.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_range.h"
#include "base/errors.h"
#include "base/process_owned.h"
#include "bindings/module.h"
#include "bindings/without_gil.h"
#include "remote/transport/http_fetcher.h"
#include "remote/transport/libcurl.h"

namespace py = pybind11;

namespace torchparquet {
namespace {

ErrorKind KindNamed(const std::string& name) {
  if (name == "not_found") return ErrorKind::kFileNotFound;
  if (name == "changed") return ErrorKind::kChanged;
  if (name == "io") return ErrorKind::kIo;
  throw py::value_error("no such kind of failure: " + name);
}

void Fail(RemoteStore& store, const BrokerRequest& request, const std::string& kind,
          const std::string& message) {
  const Error error(KindNamed(kind), Printable(message));
  // Waiting threads are told under locks that others hold without the GIL.
  WithoutGil([&] { store.broker().Fail(request, error); });
}

// Ranges of a file, asked for at once: `places` are offsets and bytes.
py::typing::List<py::bytes> Read(RemoteStore& store, size_t file,
                                 const std::vector<std::pair<int64_t, int64_t>>& places) {
  const std::shared_ptr<const RemoteObject>& object = store.object(file);
  py::typing::List<py::bytes> contents;
  std::vector<std::pair<ByteRange, uint8_t*>> wanted;
  for (const auto& [offset, num_bytes] : places) {
    if (offset < 0 || num_bytes < 0 || num_bytes > object->num_bytes - offset) {
      throw CorruptFile("file ends before the " + std::to_string(num_bytes) +
                        " bytes at offset " + std::to_string(offset));
    }
    PyObject* content = PyBytes_FromStringAndSize(nullptr, num_bytes);
    if (content == nullptr) throw py::error_already_set();
    contents.append(py::reinterpret_steal<py::bytes>(content));
    // Nobody else has the object before it is written.
    wanted.emplace_back(ByteRange{offset, num_bytes},
                        reinterpret_cast<uint8_t*>(PyBytes_AS_STRING(content)));
  }
  WithoutGil([&] {
    std::vector<RemoteBlocks::Pin> pins;
    for (const auto& [range, out] : wanted) {
      if (range.num_bytes > 0) pins.push_back(store.blocks().Hold(object, range));
    }
    for (const auto& [range, out] : wanted) store.blocks().Read(object, range, out);
  });
  return contents;
}

// Footers for another store of the same files.
struct KeptFooters {
  std::vector<std::shared_ptr<const ParsedFooter>> footers;
};

}  // namespace

RemoteStore::RemoteStore(const std::vector<std::string>& paths,
                         const Int64Array& num_bytes,
                         const std::vector<std::string>& etags,
                         const std::vector<std::string>& identities, bool with_addresses,
                         const FetchOptions& options, std::shared_ptr<BlockCache> cache)
    : broker_(MakeProcessOwned<Broker>(static_cast<int64_t>(paths.size()))),
      fetcher_(broker_) {
  if (with_addresses) {
    fetcher_ = ProcessFetcher(options);
    broker_->Tell(fetcher_);
  }
  if (cache != nullptr) {
    cached_ = MakeProcessOwned<CachedFetcher>(std::move(cache), fetcher_);
  }
  blocks_ = MakeProcessOwned<RemoteBlocks>(fetcher_);
  for (size_t i = 0; i < paths.size(); ++i) {
    objects_.push_back(std::make_shared<const RemoteObject>(
        RemoteObject{.path = paths[i],
                     .num_bytes = num_bytes.at(static_cast<py::ssize_t>(i)),
                     .etag = etags.at(i),
                     .identity = identities.at(i),
                     .patience = options,
                     .number = static_cast<int64_t>(i),
                     .addresses = with_addresses ? broker_ : nullptr}));
  }
}

void RemoteStore::AddTo(std::vector<PlannedFile>* files) const {
  if (files->size() != objects_.size()) {
    throw py::value_error("files and those of their store differ in number");
  }
  for (size_t i = 0; i < files->size(); ++i) {
    (*files)[i].remote = objects_[i];
    (*files)[i].fetcher = fetcher_;
    (*files)[i].cached = cached_;
  }
}

void BindRemoteStore(py::module_& m) {
  m.def("offer_libcurl", &OfferLibcurl, py::arg("path"));
  m.def("has_libcurl", &HaveHttp);
  py::class_<KeptFooters>(m, "KeptFooters");
  py::class_<BrokerRequest>(m, "RemoteRequest")
      .def_property_readonly("kind",
                             [](const BrokerRequest& request) {
                               const bool is_address =
                                   request.kind == BrokerRequest::Kind::kAddress;
                               return is_address ? "address" : "bytes";
                             })
      .def_readonly("file", &BrokerRequest::object)
      .def_readonly("refused", &BrokerRequest::refused)
      .def_property_readonly("offset",
                             [](const BrokerRequest& request) {
                               return request.fetch ? request.fetch->range().offset : 0;
                             })
      .def_property_readonly("num_bytes", [](const BrokerRequest& request) {
        return request.fetch ? request.fetch->range().num_bytes : 0;
      });
  py::class_<FetchOptions>(m, "FetchOptions")
      .def(py::init<>())
      .def_readwrite("max_tries", &FetchOptions::max_tries)
      .def_readwrite("max_seconds", &FetchOptions::max_seconds)
      .def_readwrite("max_connections", &FetchOptions::max_connections)
      .def_readwrite("num_threads", &FetchOptions::num_threads)
      .def_readwrite("hedges", &FetchOptions::hedges);
  py::class_<RemoteStore, std::shared_ptr<RemoteStore>>(m, "RemoteStore")
      .def(py::init([](const std::vector<std::string>& paths, const Int64Array& num_bytes,
                       const std::vector<std::string>& etags,
                       const std::vector<std::string>& identities, bool with_addresses,
                       const FetchOptions& options,
                       const std::optional<std::string>& cache_folder,
                       int64_t cache_limit) {
             std::shared_ptr<BlockCache> cache;
             if (cache_folder) {
               cache = std::make_shared<BlockCache>(*cache_folder, cache_limit);
             }
             return std::make_shared<RemoteStore>(paths, num_bytes, etags, identities,
                                                  with_addresses, options,
                                                  std::move(cache));
           }),
           py::kw_only(), py::arg("paths"), py::arg("num_bytes"), py::arg("etags"),
           py::arg("identities"), py::arg("with_addresses"), py::arg("options"),
           py::arg("cache_folder") = py::none(), py::arg("cache_limit") = 0)
      .def("next_request",
           [](RemoteStore& store) {
             return WithoutGil([&] { return store.broker().Next(); });
           })
      .def(
          "give_address",
          [](RemoteStore& store, const BrokerRequest& request, std::string url,
             std::vector<std::string> headers, double renew_at, std::string ca_file,
             std::string remedy) {
            ObjectAddress address{std::move(url), std::move(headers), renew_at,
                                  std::move(ca_file), std::move(remedy)};
            WithoutGil([&] { store.broker().GiveAddress(request, std::move(address)); });
          },
          py::arg("request"), py::arg("url"), py::arg("headers"), py::arg("renew_at"),
          py::arg("ca_file") = "", py::arg("remedy") = "")
      .def(
          "give_bytes",
          [](RemoteStore& store, const BrokerRequest& request,
             const py::buffer& content) {
            const HeldContents held({content});
            WithoutGil([&] { store.broker().GiveBytes(request, held[0]); });
          },
          py::arg("request"), py::arg("content"))
      .def("fail", &Fail, py::arg("request"), py::arg("kind"), py::arg("message"))
      .def("read", &Read, py::arg("file"), py::arg("places"))
      .def("close", [](RemoteStore& store) { WithoutGil([&] { store.Close(); }); })
      .def_property(
          "footers",
          [](const RemoteStore& store) { return KeptFooters(store.footers()); },
          [](RemoteStore& store, const KeptFooters& kept) {
            store.KeepFooters(kept.footers);
          });
}

}  // namespace torchparquet
