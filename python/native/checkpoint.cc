#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/eager/engine.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/tensor/dtype.h"

/// Checkpoints read from Python.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

/// A checkpoint that is open.
class Reader {
 public:
  explicit Reader(std::unique_ptr<ckpt::CheckpointReader> reader) : reader_(std::move(reader)) {}

  static std::unique_ptr<ckpt::CheckpointReader> open(const std::string& prefix) {
    auto opened = [&] {
      const nb::gil_scoped_release release;
      return ckpt::CheckpointReader::open(sys::posix::create_disk(), prefix);
    }();
    return value_of(std::move(opened));
  }

  [[nodiscard]] const ckpt::CheckpointReader& get() const { return *reader_; }
  [[nodiscard]] const ckpt::StoredTensor& stored(const std::string& name) const {
    if (const ckpt::StoredTensor* const found = get().find(name)) return *found;
    raise(base::not_found("the checkpoint has no tensor '{}'", name));
  }
  eager::Value read(const std::string& name) {
    Result<tensor::Tensor> value = [&] {
      const nb::gil_scoped_release release;
      return reader_->read(name);
    }();
    return {value_of(std::move(value))};
  }

 private:
  std::unique_ptr<ckpt::CheckpointReader> reader_;
};

}  // namespace

void bind_checkpoint(nb::module_& m) {
  // Paths are bytes: the names of files need not be text.
  m.def(
      "checkpoint_bases",
      [](const nb::bytes& prefix) {
        const std::string path(prefix.c_str(), prefix.size());
        std::vector<std::string> found;
        {
          const nb::gil_scoped_release release;
          found = ckpt::bases_of(sys::posix::create_disk().get(), path);
        }
        nb::list out;
        for (const std::string& base : found) out.append(nb::bytes(base.data(), base.size()));
        return out;
      },
      "prefix"_a, "The prefixes of all that a checkpoint stands on, the nearest first.");
  nb::class_<Reader>(m, "CheckpointReader", "Reads the tensors of a checkpoint by name.")
      .def(
          "__init__",
          [](Reader* at, const std::string& prefix) { new (at) Reader(Reader::open(prefix)); },
          "prefix"_a)
      .def("names",
           [](const Reader& reader) {
             std::vector<std::string> out;
             for (const ckpt::StoredTensor& stored : reader.get().list()) {
               out.push_back(stored.name);
             }
             return out;
           })
      .def(
          "dtype",
          [](const Reader& reader, const std::string& name) {
            return std::string(tensor::name_of(reader.stored(name).dtype));
          },
          "name"_a)
      .def(
          "shape",
          [](const Reader& reader, const std::string& name) {
            const auto dims = reader.stored(name).shape.dims();
            return nb::tuple(nb::cast(std::vector<int64_t>(dims.begin(), dims.end())));
          },
          "name"_a)
      .def("read", &Reader::read, "name"_a)
      .def(
          "pushed",
          [](const Reader& reader, uint64_t life) {
            std::map<std::string, std::pair<int64_t, int64_t>> out;
            for (const ckpt::Entry& entry : reader.get().index().entries) {
              if (entry.pushed.life != life) continue;
              out[entry.pushed.table].first += entry.pushed.pushes;
              out[entry.pushed.table].second += entry.pushed.rows;
            }
            return out;
          },
          "life"_a,
          "{table: (pushes, rows)} of what was pushed to a start of a task, by its incarnation, "
          "and is in the checkpoint; \"\": what is no table.")
      .def_prop_ro("base", [](const Reader& reader) { return reader.get().base(); })
      .def_prop_ro("cut", [](const Reader& reader) { return reader.get().cut(); });
}

}  // namespace sidereal::python
