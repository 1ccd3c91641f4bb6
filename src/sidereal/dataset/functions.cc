#include <algorithm>
#include <utility>
#include <vector>

#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

/// Datasets that are read in turn at most, and threads of a Map.
constexpr int64_t kCycleMax = 10'000;
constexpr int kThreadsMax = 64;

/// A stage that runs a function on each element of its input.
class WithFunction : public Stage {
 public:
  WithFunction(const DatasetPtr& dataset, StagePtr input, Runtime* runtime)
      : Stage(dataset, runtime), input_(std::move(input)), step_(first_step(new_iteration())) {}

  Status save(PositionWriter* out) override {
    save_iterations(out);
    out->put(step_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(restore_iterations(in));
    SR_RETURN_IF_ERROR(in->get(&step_));
    return input_->restore(in);
  }

 protected:
  Result<std::vector<Tensor>> call(const Element& element) {
    return runtime().call(dataset(), element, step_++);
  }

  StagePtr input_;
  uint64_t step_;  // Of the next call.
};

class Map final : public WithFunction {
 public:
  using WithFunction::WithFunction;

  Result<bool> next(Element* out) override {
    out->clear();
    SR_ASSIGN_OR_RETURN(const bool some, input_->next(&element_));
    if (!some) return false;
    SR_ASSIGN_OR_RETURN(std::vector<Tensor> values, call(element_));
    *out = element_of(std::move(values));
    return true;
  }

 private:
  Element element_;
};

/// The elements of which a predicate says true: all of them, or those before the first other.
class Predicate final : public WithFunction {
 public:
  Predicate(const DatasetPtr& dataset, StagePtr input, bool is_take_while, Runtime* runtime)
      : WithFunction(dataset, std::move(input), runtime), is_take_while_(is_take_while) {}

  Result<bool> next(Element* out) override {
    out->clear();
    while (!ended_) {
      SR_RETURN_IF_ERROR(check_stopped());
      SR_ASSIGN_OR_RETURN(const bool some, input_->next(out));
      if (!some) return false;
      SR_ASSIGN_OR_RETURN(const std::vector<Tensor> values, call(*out));
      if (values[0].num_elements() != 1) {
        out->clear();
        return base::invalid_argument("{}: the predicate gave {}; it must be one bool",
                                      dataset().op(), values[0].to_string());
      }
      if (values[0].data<const bool>()[0]) return true;
      ended_ = is_take_while_;
      out->clear();
    }
    return false;
  }
  Status save(PositionWriter* out) override {
    out->put(ended_);
    return WithFunction::save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get(&ended_));
    return WithFunction::restore(in);
  }

 private:
  bool is_take_while_;
  bool ended_ = false;
};

/// Reads datasets that a function gives in turn, `block` elements of each at a time.
class Interleave final : public WithFunction {
 public:
  Interleave(const DatasetPtr& dataset, StagePtr input, int64_t cycle, int64_t block,
             Runtime* runtime)
      : WithFunction(dataset, std::move(input), runtime),
        open_(static_cast<size_t>(cycle)),
        block_(block),
        parallel_(ir::attr_or<int64_t>(dataset->def().attrs, "parallel", 0)) {}

  Result<bool> next(Element* out) override {
    out->clear();
    for (;;) {
      SR_RETURN_IF_ERROR(check_stopped());
      Open& open = open_[at_];
      if (open.stage == nullptr) {
        if (!ended_) {
          SR_ASSIGN_OR_RETURN(const bool some, input_->next(&open.element));
          ended_ = !some;
          if (some) {
            Status status = begin(&open, step_++);
            if (!status.ok()) return status;
            ++count_;
            continue;
          }
        }
        if (count_ == 0) return false;
        advance();
        continue;
      }
      SR_ASSIGN_OR_RETURN(const bool some, open.stage->next(out));
      if (some) {
        if (++given_ == block_) advance();
        return true;
      }
      open = Open();
      --count_;
      advance();
    }
  }
  Status save(PositionWriter* out) override {
    out->put(ended_);
    out->put(static_cast<int64_t>(at_));
    out->put(given_);
    for (const Open& open : open_) {
      out->put(open.stage != nullptr);
      if (open.stage == nullptr) continue;
      out->put(open.step);
      out->put(open.element);
      SR_RETURN_IF_ERROR(open.stage->save(out));
    }
    return WithFunction::save(out);
  }
  Status restore(PositionReader* in) override {
    int64_t at = 0;
    SR_RETURN_IF_ERROR(in->get(&ended_));
    SR_RETURN_IF_ERROR(in->get_number(&at, static_cast<int64_t>(open_.size()) - 1));
    SR_RETURN_IF_ERROR(in->get_number(&given_, block_ - 1));
    at_ = static_cast<size_t>(at);
    for (Open& open : open_) {
      bool is_open = false;
      SR_RETURN_IF_ERROR(in->get(&is_open));
      if (!is_open) continue;
      uint64_t step = 0;
      SR_RETURN_IF_ERROR(in->get(&step));
      SR_RETURN_IF_ERROR(in->get(&open.element, input()->outputs()));
      SR_RETURN_IF_ERROR(begin(&open, step));
      SR_RETURN_IF_ERROR(open.stage->restore(in));
      ++count_;
    }
    return WithFunction::restore(in);
  }

 private:
  struct Open {
    StagePtr stage;
    Element element;  ///< Of the input, from which it was made.
    uint64_t step = 0;
  };

  void advance() {
    given_ = 0;
    at_ = (at_ + 1) % open_.size();
  }
  Status begin(Open* open, uint64_t step) {
    open->step = step;
    SR_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        runtime().call(dataset(), open->element, step));
    const DatasetPtr& inner = dataset().def().inner;
    SR_ASSIGN_OR_RETURN(const DatasetPtr filled, inner->filled(inner, values, open->element));
    SR_ASSIGN_OR_RETURN(open->stage, make_stage(filled, &runtime()));
    // Those at the first places of the cycle, each on a thread of its own.
    const auto place = static_cast<int64_t>(open - open_.data());
    if (place < std::min<int64_t>(parallel_, kThreadsMax)) {
      open->stage = make_ahead(filled, std::move(open->stage), block_ + 1, &runtime());
    }
    return {};
  }

  std::vector<Open> open_;
  int64_t block_;
  int64_t parallel_;   // Datasets that are read ahead.
  size_t at_ = 0;      // Which is read.
  int64_t given_ = 0;  // Elements of its block.
  int64_t count_ = 0;  // Of open ones.
  bool ended_ = false;
};

}  // namespace

Result<StagePtr> make_function(const DatasetPtr& dataset, StagePtr input, Runtime* runtime) {
  const std::string& op = dataset->op();
  if (op == "Filter" || op == "TakeWhile") {
    return std::make_unique<Predicate>(dataset, std::move(input), op == "TakeWhile", runtime);
  }
  if (op == "Map") {
    auto threads = ir::attr_or<int64_t>(dataset->def().attrs, "parallel", 0);
    if (threads < 0) threads = runtime->options().threads;
    if (threads < 2) return std::make_unique<Map>(dataset, std::move(input), runtime);
    return make_parallel_map(dataset, std::move(input),
                             static_cast<int>(std::min<int64_t>(threads, kThreadsMax)), runtime);
  }
  SR_ASSIGN_OR_RETURN(const int64_t cycle, number_of(*dataset, 0));
  SR_ASSIGN_OR_RETURN(const int64_t block, number_of(*dataset, 1));
  if (cycle < 1 || cycle > kCycleMax || block < 1) {
    return base::invalid_argument(
        "interleave: cycle_length is {} and block_length {}; they must be positive, cycle_length "
        "at most {}",
        cycle, block, kCycleMax);
  }
  return std::make_unique<Interleave>(dataset, std::move(input), cycle, block, runtime);
}

}  // namespace sidereal::dataset
