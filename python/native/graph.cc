#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings.h"
#include "errors.h"
#include "sidereal/ir/text.h"
#include "sidereal/train/model.h"
#include "sidereal/train/models.h"
#include "sidereal/train/optimizers.h"
#include "symbol.h"

namespace sidereal::python {

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Dims = std::vector<int64_t>;
using eager::Value;

/// A train::Model that says so when it is used after compile(), which takes its graph away.
/// Thread: under the GIL.
struct Model final : Building {
  explicit Model(uint64_t seed) : model(seed) {}
  ir::Builder& builder() override { return model.builder(); }
  train::Model model;
};
using ModelPtr = std::shared_ptr<Model>;

Symbol wrap(const BuildingPtr& building, ir::Output output) {
  const Status status = building->builder().status();
  building->builder().clear_status();
  check(status);
  return {building, output};
}

Dims dims_of(const ir::Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

ir::Output same_model(const BuildingPtr& model, const Symbol& x) {
  if (x.building != model) {
    raise(base::invalid_argument("values of two models cannot be combined"));
  }
  return x.output;
}

/// The handle of a new variable, for layers of Python.
Symbol make_variable(const ModelPtr& model, const std::string& name, nb::handle shape,
                     const std::string& dtype, const train::Initializer& initializer,
                     const std::optional<Value>& value, double l2, bool is_table, bool trainable) {
  static_cast<void>(open(model));
  train::VariableOptions options{.initializer = model->model.seeded(initializer),
                                 .dtype = value_of(tensor::dtype_from_name(dtype)),
                                 .is_table = is_table,
                                 .trainable = trainable};
  if (value.has_value()) options.value = std::make_shared<const ir::Tensor>(value->tensor);
  if (l2 != 0) options.parameters["l2_penalty"] = l2;
  return wrap(model, model->model.variable(name, shape_from_object(shape), options));
}

void bind_initializer(nb::module_& m) {
  nb::class_<train::Initializer>(m, "Initializer", "How a variable's first value is made.")
      .def(
          "__init__",
          [](train::Initializer* self, const std::string& kind, double a, double b, uint64_t seed) {
            new (self) train::Initializer{kind, a, b, seed};
          },
          "kind"_a = "zeros", "a"_a = 0.0, "b"_a = 0.0, "seed"_a = 0)
      .def_ro("kind", &train::Initializer::kind)
      .def_ro("a", &train::Initializer::a)
      .def_ro("b", &train::Initializer::b)
      .def_ro("seed", &train::Initializer::seed);
}

using NamedSpec = std::tuple<std::string, std::string, Dims>;

std::vector<NamedSpec> inputs_of(const train::CompiledModel& model) {
  std::vector<NamedSpec> inputs;
  for (const std::string& name : model.inputs) {
    const ir::TensorSpec& spec = model.graph.find(name)->outputs[0];
    inputs.emplace_back(name, std::string(tensor::name_of(spec.dtype)), dims_of(spec.shape));
  }
  return inputs;
}

std::vector<NamedSpec> variables_of(const train::CompiledModel& model) {
  std::vector<NamedSpec> variables;
  for (const train::ModelVariable& variable : model.variables) {
    variables.emplace_back(variable.name, std::string(tensor::name_of(variable.options.dtype)),
                           dims_of(variable.shape));
  }
  return variables;
}

using Parameters = std::map<std::string, double>;

train::OptimizerDef make_optimizer(const std::string& kind, const Parameters& parameters,
                                   double clipvalue, double clipnorm, double global_clipnorm) {
  train::OptimizerDef made =
      value_of(train::make_optimizer(kind, {}, {parameters.begin(), parameters.end()}));
  made.clipping = {.value = clipvalue, .norm = clipnorm, .global_norm = global_clipnorm};
  return made;
}

void bind_models(nb::module_& m) {
  nb::class_<train::CompiledModel>(m, "CompiledModel", "A model ready to be trained.")
      .def_prop_ro("inputs", &inputs_of, "(name, dtype, shape) of every input.")
      .def_ro("prediction", &train::CompiledModel::prediction, "Name of what it predicts.")
      .def_prop_ro(
          "prediction_inputs",
          [](const train::CompiledModel& model) {
            return value_of(train::placeholders_of(model.graph, {model.prediction}));
          },
          "Names of the inputs that the prediction depends on.")
      .def_ro("is_binary", &train::CompiledModel::is_binary,
              "Whether it predicts the probability of label 1.")
      .def_prop_ro("variables", &variables_of, "(name, dtype, shape) of every variable.")
      .def("__str__", [](const train::CompiledModel& c) { return ir::to_text(c.graph); });
  nb::class_<train::OptimizerDef>(m, "Optimizer")
      .def_ro("kind", &train::OptimizerDef::kind)
      .def_prop_ro("parameters", [](const train::OptimizerDef& o) {
        return Parameters(o.parameters.begin(), o.parameters.end());
      });
  m.def("make_optimizer", &make_optimizer, "kind"_a, "parameters"_a, "clipvalue"_a = 0.0,
        "clipnorm"_a = 0.0, "global_clipnorm"_a = 0.0);
  m.def("optimizer_names", &train::optimizer_names);
  m.def("model_names", &train::model_names);
  nb::class_<Model, Building>(m, "Model", nb::dynamic_attr(), "A model under construction.")
      .def(nb::init<uint64_t>(), "seed"_a = 0)
      .def(
          "input",
          [](const ModelPtr& self, const std::string& name, const std::string& dtype,
             const Dims& shape) {
            const ir::DType type = value_of(tensor::dtype_from_name(dtype));
            static_cast<void>(open(self));
            return wrap(self, self->model.input(name, type, ir::Shape(std::span(shape))));
          },
          "name"_a, "dtype"_a, "shape"_a)
      .def("variable", &make_variable, "name"_a, "shape"_a, "dtype"_a, "initializer"_a,
           "value"_a.none(), "l2"_a, "is_table"_a, "trainable"_a)
      .def("next_seed",
           [](const ModelPtr& self) {
             static_cast<void>(open(self));
             return self->model.next_seed();
           })
      .def("steps_done",
           [](const ModelPtr& self) {
             static_cast<void>(open(self));
             return wrap(self, self->model.steps_done());
           })
      .def(
          "set_learning_rate",
          [](const ModelPtr& self, const Symbol& rate) {
            static_cast<void>(open(self));
            self->model.set_learning_rate(same_model(self, rate));
          },
          "rate"_a)
      .def(
          "add_update",
          [](const ModelPtr& self, const Symbol& made) {
            static_cast<void>(open(self));
            self->model.add_update(same_model(self, made).node);
          },
          "made"_a)
      .def(
          "compile",
          [](const ModelPtr& self, const Symbol& logit, const train::OptimizerDef& optimizer) {
            static_cast<void>(open(self));
            const ir::Output output = same_model(self, logit);
            self->closed = "this model is compiled: nothing can be added to it";
            return value_of(self->model.compile(output, optimizer));
          },
          "logit"_a, "optimizer"_a)
      .def(
          "compile_loss",
          [](const ModelPtr& self, const Symbol& prediction, const Symbol& loss,
             const train::OptimizerDef& optimizer) {
            static_cast<void>(open(self));
            const ir::Output output = same_model(self, prediction);
            const ir::Output minimized = same_model(self, loss);
            self->closed = "this model is compiled: nothing can be added to it";
            return value_of(self->model.compile(output, minimized, optimizer));
          },
          "prediction"_a, "loss"_a, "optimizer"_a);
  m.def(
      "build_model",
      [](const std::string& kind, const data::Schema& schema, const train::OptimizerDef& optimizer,
         int64_t embedding_dim, double embedding_stddev, const Dims& hidden, double dropout,
         int64_t cross_layers, uint64_t seed, double l2_embedding, double l2_linear,
         double l2_dense, const std::string& loss, int64_t classes, int64_t experts) {
        return value_of(train::build_model({.kind = kind,
                                            .schema = schema,
                                            .embedding_dim = embedding_dim,
                                            .embedding_stddev = embedding_stddev,
                                            .hidden = hidden,
                                            .dropout = dropout,
                                            .cross_layers = cross_layers,
                                            .objective = {.loss = loss, .classes = classes},
                                            .experts = experts,
                                            .optimizer = optimizer,
                                            .seed = seed,
                                            .l2_embedding = l2_embedding,
                                            .l2_linear = l2_linear,
                                            .l2_dense = l2_dense}));
      },
      "kind"_a, "schema"_a, "optimizer"_a, "embedding_dim"_a, "embedding_stddev"_a, "hidden"_a,
      "dropout"_a, "cross_layers"_a, "seed"_a, "l2_embedding"_a, "l2_linear"_a, "l2_dense"_a,
      "loss"_a = "binary_crossentropy", "classes"_a = 0, "experts"_a = 4);
  m.def("loss_names", &train::loss_names);
}

}  // namespace

void bind_graph(nb::module_& m) {
  bind_initializer(m);
  bind_models(m);
}

}  // namespace sidereal::python
