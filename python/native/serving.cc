#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "gil.h"
#include "sidereal/serving/batcher.h"
#include "sidereal/serving/function_model.h"
#include "sidereal/serving/grpc_front.h"
#include "symbol.h"

/// What python/sidereal/serving is made of: batches, models, and gRPC.
namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using eager::Engine;
using eager::Value;
using serving::Batcher;
using serving::Columns;
using serving::GrpcFront;
using serving::Histogram;
using serving::OtherCall;

std::chrono::nanoseconds of_seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<double>(seconds));
}

/// Owned by Python and others; it ends without the GIL, as its threads may want it.
template <class T>
std::shared_ptr<T> shared_without_gil(T* made) {
  return {made, [](T* held) {
            if (PyGILState_Check() != 0) {
              without_gil([&] { delete held; });
            } else {
              delete held;
            }
          }};
}

/// A Python object that is let go by any thread.
class AnyThread {
 public:
  explicit AnyThread(nb::object held) : held_(std::move(held)) {}
  ~AnyThread() {
    const GilAcquired gil;
    held_.reset();
  }
  AnyThread(const AnyThread&) = delete;
  AnyThread& operator=(const AnyThread&) = delete;
  [[nodiscard]] const nb::object& get() const { return held_; }

 private:
  nb::object held_;
};

/// What an exception says, as the errors of sidereal.errors do. Under the GIL.
Status status_of(const nb::python_error& error) {
  const nb::handle value = error.value();
  const nb::object base = nb::module_::import_("sidereal.errors").attr("Error");
  if (nb::isinstance(value, base)) {
    return base::make_status(static_cast<StatusCode>(nb::cast<int>(value.attr("code"))),
                             nb::cast<std::string>(nb::str(value.attr("message"))));
  }
  return base::internal("{}: {}", nb::type_name(value.type()).c_str(), nb::str(value).c_str());
}

/// `function([Tensor...])`, which gives a list of Tensors.
class PythonModel final : public serving::Model {
 public:
  PythonModel(Engine* engine, nb::object function)
      : engine_(*engine), function_(std::move(function)) {}

  Result<Columns> call(const Columns& columns) override {
    const GilAcquired gil;
    try {
      nb::list given;
      for (const Tensor& column : columns) given.append(nb::cast(engine_.wrap(column)));
      Columns out;
      for (const nb::handle item : function_.get()(given)) {
        out.push_back(nb::cast<const Value&>(item).tensor);
      }
      return out;
    } catch (const nb::python_error& error) {
      return status_of(error);
    } catch (const nb::cast_error&) {
      return base::internal("a model gave something else than tensors");
    }
  }

 private:
  using Tensor = tensor::Tensor;
  Engine& engine_;
  const AnyThread function_;
};

/// A model on its way to its batcher.
struct ServedModel {
  std::unique_ptr<serving::Model> model;
};

ServedModel function_model(const eager::LocalFunction& function, nb::handle captures,
                           const Engine& engine) {
  std::vector<tensor::Tensor> values;
  for (const nb::handle item : captures) values.push_back(nb::cast<const Value&>(item).tensor);
  const int threads = const_cast<Engine&>(engine).context().intra_op_threads();
  return {value_of(without_gil(
      [&] { return serving::FunctionModel::create(function.def(), std::move(values), threads); }))};
}

/// Answers on their way to an event loop, which is told by a descriptor that there are some.
class Answers {
 public:
  Answers() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)), owner_(std::this_thread::get_id()) {
    if (fd_ < 0) raise(base::resource_exhausted("there is no descriptor for an event"));
  }
  ~Answers() { ::close(fd_); }
  Answers(const Answers&) = delete;
  Answers& operator=(const Answers&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

  void add(uint64_t token, Result<Columns> outputs) {
    bool tells = false;
    {
      const std::lock_guard lock(mutex_);
      // The loop itself looks when it has said flush() or sweep().
      tells = std::this_thread::get_id() != owner_ && !is_told_;
      is_told_ = is_told_ || tells;
      answers_.emplace_back(token, std::move(outputs));
    }
    const uint64_t one = 1;
    // It can only be full, and then it tells.
    if (tells) static_cast<void>(!::write(fd_, &one, sizeof(one)));
  }

  /// (token, tensors or None, code, message) of each.
  nb::list take(Engine& engine) {
    std::vector<std::pair<uint64_t, Result<Columns>>> taken;
    bool was_told = false;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(answers_);
      was_told = std::exchange(is_told_, false);
    }
    uint64_t count = 0;
    if (was_told) static_cast<void>(!::read(fd_, &count, sizeof(count)));
    nb::list out;
    for (auto& [token, outputs] : taken) {
      if (!outputs.ok()) {
        out.append(nb::make_tuple(token, nb::none(), static_cast<int>(outputs.status().code()),
                                  base::message_of(outputs.status())));
        continue;
      }
      nb::list tensors;
      for (tensor::Tensor& one : *outputs) tensors.append(nb::cast(engine.wrap(std::move(one))));
      out.append(nb::make_tuple(token, tensors, 0, ""));
    }
    return out;
  }

 private:
  const int fd_;
  const std::thread::id owner_;
  std::mutex mutex_;
  std::vector<std::pair<uint64_t, Result<Columns>>> answers_;
  bool is_told_ = false;
};

std::shared_ptr<Batcher> make_batcher(const std::string& name, ServedModel& model, int64_t rows_max,
                                      double timeout_s, int64_t queue_max,
                                      const std::shared_ptr<serving::BatchFigures>& figures) {
  return shared_without_gil(new Batcher(
      name, std::move(model.model),
      {.rows_max = rows_max, .timeout = of_seconds(timeout_s), .queue_max = queue_max}, figures));
}

std::shared_ptr<serving::Waiting> submit(Batcher& batcher, nb::handle tensors, int64_t rows,
                                         double seconds, uint64_t token,
                                         const std::shared_ptr<Answers>& answers) {
  Columns columns;
  for (const nb::handle item : tensors) columns.push_back(nb::cast<const Value&>(item).tensor);
  return value_of(batcher.submit(
      std::move(columns), rows, serving::Clock::now() + of_seconds(seconds),
      [token, answers](Result<Columns> outputs) { answers->add(token, std::move(outputs)); }));
}

nb::tuple figures_of(const Histogram& histogram) {
  return nb::make_tuple(histogram.bounds(), histogram.counts(), histogram.sum());
}

using GivenInput = std::tuple<std::string, nb::object, std::vector<int64_t>>;
using GivenSignature = std::tuple<std::string, std::vector<GivenInput>, std::vector<std::string>,
                                  std::shared_ptr<Batcher>>;

void serve(GrpcFront& front, const std::string& model, int64_t number,
           const std::vector<std::string>& labels, const std::vector<GivenSignature>& signatures) {
  auto version = std::make_shared<serving::Version>();
  version->model = model;
  version->number = number;
  version->labels = labels;
  for (const auto& [name, inputs, outputs, batcher] : signatures) {
    serving::Signature made{.name = name, .outputs = outputs, .batcher = batcher};
    for (const auto& [input, dtype, shape] : inputs) {
      made.inputs.push_back(
          {input, dtype_from_object(dtype), tensor::Shape(std::span<const int64_t>(shape))});
    }
    version->signatures.push_back(std::move(made));
  }
  front.serve(std::move(version));
}

std::shared_ptr<GrpcFront> start(const std::string& address, const std::string& certificate_file,
                                 const std::string& key_file, const std::string& ca_file,
                                 bool insecure, size_t message_bytes, int calls, double timeout_s,
                                 const nb::object& others) {
  serving::GrpcFrontOptions options{.address = address,
                                    .security = {.certificate_file = certificate_file,
                                                 .key_file = key_file,
                                                 .ca_file = ca_file,
                                                 .insecure = insecure},
                                    .message_bytes = message_bytes,
                                    .calls = calls,
                                    .timeout = of_seconds(timeout_s)};
  const auto handler = std::make_shared<const AnyThread>(others);
  auto made = value_of(without_gil([&] {
    return GrpcFront::start(options, [handler](std::unique_ptr<OtherCall> call) {
      const GilAcquired gil;
      try {
        handler->get()(std::shared_ptr<OtherCall>(std::move(call)));
      } catch (nb::python_error& error) {
        error.discard_as_unraisable("a call of gRPC");
      }
    });
  }));
  return shared_without_gil(made.release());
}

}  // namespace

void bind_serving(nb::module_& m) {
  nb::class_<ServedModel>(m, "ServedModel", "What a signature computes.")
      .def_static("of_function", &function_model, "function"_a, "captures"_a, "engine"_a,
                  "A function that computes and does nothing else, without Python.")
      .def_static(
          "of_callable",
          [](nb::object function, Engine& engine) {
            return ServedModel{std::make_unique<PythonModel>(&engine, std::move(function))};
          },
          "function"_a, "engine"_a, nb::keep_alive<0, 2>());
  nb::class_<serving::BatchFigures>(m, "BatchFigures", "What calls of models were like.")
      .def_static("make", [] { return std::make_shared<serving::BatchFigures>(); })
      .def_prop_ro("rows", [](const serving::BatchFigures& f) { return figures_of(f.rows); })
      .def_prop_ro("seconds", [](const serving::BatchFigures& f) { return figures_of(f.seconds); });
  nb::class_<Answers>(m, "Answers", "Answers on their way to an event loop.")
      .def_static("make", [] { return std::make_shared<Answers>(); })
      .def("fileno", &Answers::fd)
      .def("take", &Answers::take, "engine"_a);
  nb::class_<serving::Waiting>(m, "Waiting", "A request that waits for its outputs.")
      .def("cancel", &serving::Waiting::cancel);
  nb::class_<Batcher>(m, "Batcher", "Requests that wait at once run as one call.")
      .def_static("make", &make_batcher, "name"_a, "model"_a, "rows_max"_a, "timeout_s"_a,
                  "queue_max"_a, "figures"_a)
      .def("submit", &submit, "tensors"_a, "rows"_a, "seconds"_a, "token"_a, "answers"_a)
      .def("flush", &Batcher::flush, nb::call_guard<GilReleased>())
      .def(
          "sweep", [](Batcher& batcher) { return batcher.sweep(serving::Clock::now()); },
          nb::call_guard<GilReleased>())
      .def_prop_ro("waiting_rows", &Batcher::waiting_rows)
      .def_prop_ro("is_running", &Batcher::is_running)
      .def("close", &Batcher::close, nb::call_guard<GilReleased>())
      .def(
          "wait_idle",
          [](Batcher& batcher, double seconds) { return batcher.wait_idle(of_seconds(seconds)); },
          "seconds"_a, nb::call_guard<GilReleased>());
  nb::class_<OtherCall>(m, "OtherCall", "A call of gRPC, to be answered once.")
      .def_prop_ro("method", [](const OtherCall& call) { return std::string(call.method()); })
      .def_prop_ro("request",
                   [](const OtherCall& call) {
                     const std::string bytes = call.request();
                     return nb::bytes(bytes.data(), bytes.size());
                   })
      .def(
          "reply",
          [](OtherCall& call, const nb::bytes& message) {
            call.reply(std::string(message.c_str(), message.size()));
          },
          "message"_a)
      .def(
          "refuse",
          [](OtherCall& call, int code, const std::string& message) {
            call.reply(base::make_status(static_cast<StatusCode>(code), message));
          },
          "code"_a, "message"_a);
  nb::class_<GrpcFront>(m, "GrpcFront", "TensorFlow Serving's gRPC services.")
      .def_static("start", &start, "address"_a, nb::kw_only(), "certificate_file"_a, "key_file"_a,
                  "ca_file"_a, "insecure"_a, "message_bytes"_a, "calls"_a, "timeout_s"_a,
                  "others"_a)
      .def_prop_ro("port", &GrpcFront::port)
      .def("serve", &serve, "model"_a, "number"_a, "labels"_a, "signatures"_a)
      .def(
          "serve_nothing", [](GrpcFront& front) { front.serve(nullptr); },
          nb::call_guard<GilReleased>())
      .def("tell_health", &GrpcFront::tell_health, "service"_a, "is_serving"_a)
      .def(
          "stop", [](GrpcFront& front, double drain_s) { front.stop(of_seconds(drain_s)); },
          "drain_s"_a, nb::call_guard<GilReleased>())
      .def("answered", &GrpcFront::answered)
      .def_prop_ro("seconds", [](const GrpcFront& front) { return figures_of(front.seconds()); });
}

}  // namespace sidereal::python
