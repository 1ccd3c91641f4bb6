#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "sidereal/data/random.h"
#include "sidereal/dataset/internal/stage.h"

namespace sidereal::dataset {
namespace {

/// A stage with one input.
class OneInput : public Stage {
 public:
  OneInput(DatasetPtr dataset, StagePtr input, Runtime* runtime)
      : Stage(std::move(dataset), runtime), input_(std::move(input)) {}

 protected:
  StagePtr input_;
};

class Repeat final : public OneInput {
 public:
  Repeat(DatasetPtr dataset, StagePtr input, int64_t count, Runtime* runtime)
      : OneInput(std::move(dataset), std::move(input), runtime), count_(count) {}

  Result<bool> next(Element* out) override {
    out->clear();
    while (count_ < 0 || pass_ < count_) {
      SR_RETURN_IF_ERROR(check_stopped());
      SR_ASSIGN_OR_RETURN(const bool some, input_->next(out));
      if (some) {
        is_empty_ = false;
        return true;
      }
      // For ever nothing is nothing.
      if (count_ < 0 && is_empty_) return false;
      ++pass_;
      if (pass_ == count_) break;
      is_empty_ = true;
      input_ = nullptr;
      SR_ASSIGN_OR_RETURN(input_, make_stage(input(), &runtime()));
    }
    return false;
  }
  Status save(PositionWriter* out) override {
    out->put(pass_);
    out->put(is_empty_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get_number(&pass_));
    SR_RETURN_IF_ERROR(in->get(&is_empty_));
    return input_->restore(in);
  }

 private:
  int64_t count_;  // Below 0: no end.
  int64_t pass_ = 0;
  bool is_empty_ = true;  // So far, in this pass.
};

class Take final : public OneInput {
 public:
  Take(DatasetPtr dataset, StagePtr input, int64_t count, Runtime* runtime)
      : OneInput(std::move(dataset), std::move(input), runtime), left_(count) {}

  Result<bool> next(Element* out) override {
    out->clear();
    if (left_ == 0) return false;
    SR_ASSIGN_OR_RETURN(const bool some, input_->next(out));
    if (!some) left_ = 0;
    if (left_ > 0) --left_;
    return some;
  }
  Status save(PositionWriter* out) override {
    out->put(left_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get(&left_));
    return input_->restore(in);
  }

 private:
  int64_t left_;  // -1: all.
};

class Skip final : public OneInput {
 public:
  Skip(DatasetPtr dataset, StagePtr input, int64_t count, Runtime* runtime)
      : OneInput(std::move(dataset), std::move(input), runtime), count_(count) {}

  Result<bool> next(Element* out) override {
    out->clear();
    if (count_ < 0) return false;
    if (count_ > 0) {
      // An error on the way is not met again.
      const int64_t count = std::exchange(count_, 0);
      SR_RETURN_IF_ERROR(input_->skip(count).status());
    }
    return input_->next(out);
  }
  Status save(PositionWriter* out) override {
    out->put(count_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get(&count_));
    return input_->restore(in);
  }

 private:
  int64_t count_;  // Still to be passed over; below 0: all.
};

/// Every `count`-th element, from the `index`-th on.
class Shard final : public OneInput {
 public:
  Shard(DatasetPtr dataset, StagePtr input, int64_t count, int64_t index, Runtime* runtime)
      : OneInput(std::move(dataset), std::move(input), runtime), count_(count), before_(index) {}

  Result<bool> next(Element* out) override {
    out->clear();
    const int64_t before = std::exchange(before_, count_ - 1);
    SR_ASSIGN_OR_RETURN(const int64_t skipped, input_->skip(before));
    return skipped < before ? Result<bool>(false) : input_->next(out);
  }
  Status save(PositionWriter* out) override {
    out->put(before_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get_number(&before_, count_));
    return input_->restore(in);
  }

 private:
  int64_t count_;
  int64_t before_;  // Elements to pass over before the next one.
};

class Shuffle final : public OneInput {
 public:
  Shuffle(const DatasetPtr& dataset, StagePtr input, int64_t size, Runtime* runtime)
      : OneInput(dataset, std::move(input), runtime), size_(size) {
    const ir::AttrMap& attrs = dataset->def().attrs;
    const auto* seed = ir::find_attr<int64_t>(attrs, "seed");
    key_ = data::mix64(seed == nullptr ? runtime->options().seed + data::kGoldenGamma
                                       : static_cast<uint64_t>(*seed));
    if (seed == nullptr || ir::attr_or(attrs, "reshuffle_each_iteration", true)) {
      key_ = data::counter_random(key_, new_iteration());
    }
  }

  Result<bool> next(Element* out) override {
    out->clear();
    SR_RETURN_IF_ERROR(collect(input_.get(), size_, &buffer_, &ended_));
    if (buffer_.empty()) return false;
    const uint64_t random = data::counter_random(key_, static_cast<uint64_t>(drawn_++));
    const auto at =
        static_cast<size_t>((static_cast<unsigned __int128>(random) * buffer_.size()) >> 64);
    std::swap(buffer_[at], buffer_.back());
    *out = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }
  Status save(PositionWriter* out) override {
    save_iterations(out);
    out->put(key_);
    out->put(drawn_);
    out->put(ended_);
    out->put_all(buffer_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(restore_iterations(in));
    SR_RETURN_IF_ERROR(in->get(&key_));
    SR_RETURN_IF_ERROR(in->get_number(&drawn_));
    SR_RETURN_IF_ERROR(in->get(&ended_));
    SR_RETURN_IF_ERROR(in->get_all(&buffer_, specs()));
    return input_->restore(in);
  }

 private:
  int64_t size_;
  uint64_t key_;
  int64_t drawn_ = 0;
  bool ended_ = false;
  std::vector<Element> buffer_;
};

class Zip final : public Stage {
 public:
  Zip(DatasetPtr dataset, std::vector<StagePtr> inputs, Runtime* runtime)
      : Stage(std::move(dataset), runtime), inputs_(std::move(inputs)) {}

  Result<bool> next(Element* out) override {
    out->clear();
    if (ended_) return false;
    // After an error in one, the others have to go on as well, or what belongs together does not
    // come together any more.
    Status error;
    for (const StagePtr& input : inputs_) {
      const Result<bool> some = input->next(&part_);
      if (!some.ok()) {
        if (error.ok()) error = some.status();
        continue;
      }
      if (!*some) {
        ended_ = error.ok();
        out->clear();
        return error.ok() ? Result<bool>(false) : error;
      }
      out->insert(out->end(), std::make_move_iterator(part_.begin()),
                  std::make_move_iterator(part_.end()));
    }
    if (!error.ok()) return error;
    return true;
  }
  Status save(PositionWriter* out) override {
    out->put(ended_);
    for (const StagePtr& input : inputs_) SR_RETURN_IF_ERROR(input->save(out));
    return {};
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(in->get(&ended_));
    for (const StagePtr& input : inputs_) SR_RETURN_IF_ERROR(input->restore(in));
    return {};
  }

 private:
  std::vector<StagePtr> inputs_;
  Element part_;
  bool ended_ = false;
};

class Concatenate final : public OneInput {
 public:
  using OneInput::OneInput;

  Result<bool> next(Element* out) override {
    for (;;) {
      SR_ASSIGN_OR_RETURN(const bool some, input_->next(out));
      if (some || is_second_) return some;
      SR_RETURN_IF_ERROR(go_on());
    }
  }
  Status save(PositionWriter* out) override {
    out->put(is_second_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    bool is_second = false;
    SR_RETURN_IF_ERROR(in->get(&is_second));
    if (is_second) SR_RETURN_IF_ERROR(go_on());
    return input_->restore(in);
  }

 private:
  Status go_on() {
    input_ = nullptr;
    is_second_ = true;
    SR_ASSIGN_OR_RETURN(input_, make_stage(input(1), &runtime()));
    return {};
  }

  bool is_second_ = false;
};

/// Keeps what its input gives, in memory, for all iterators of the dataset.
class Cache final : public OneInput {
 public:
  Cache(const DatasetPtr& dataset, StagePtr input, Runtime* runtime)
      : OneInput(dataset, std::move(input), runtime), shared_(dataset->shared()) {
    const std::lock_guard lock(shared_.mutex);
    is_read_ = shared_.cached;
  }

  Result<bool> next(Element* out) override {
    out->clear();
    if (is_read_) {
      const std::lock_guard lock(shared_.mutex);
      if (at_ >= shared_.cache.size()) return false;
      *out = shared_.cache[at_++];
      return true;
    }
    SR_ASSIGN_OR_RETURN(const bool some, fill(out));
    if (some) return true;
    is_read_ = true;
    at_ = SIZE_MAX;
    return false;
  }
  Status save(PositionWriter* out) override {
    out->put(is_read_);
    out->put(static_cast<uint64_t>(at_));
    if (is_read_) return {};
    out->put_all(filled_);
    return input_->save(out);
  }
  Status restore(PositionReader* in) override {
    bool was_read = false;
    uint64_t at = 0;
    SR_RETURN_IF_ERROR(in->get(&was_read));
    SR_RETURN_IF_ERROR(in->get(&at));
    at_ = at;
    if (was_read) {
      Element element;
      bool some = !is_read_;
      while (some) {
        SR_ASSIGN_OR_RETURN(some, fill(&element));
      }
      is_read_ = true;
      return {};
    }
    is_read_ = false;
    SR_RETURN_IF_ERROR(in->get_all(&filled_, specs()));
    return input_->restore(in);
  }

 private:
  /// The next element of the input; at its end, leaves all of them for others.
  Result<bool> fill(Element* out) {
    SR_RETURN_IF_ERROR(check_stopped());
    SR_ASSIGN_OR_RETURN(const bool some, input_->next(out));
    if (some) {
      filled_.push_back(*out);
      return true;
    }
    const std::lock_guard lock(shared_.mutex);
    if (!shared_.cached) {
      shared_.cached = true;
      shared_.cache = std::move(filled_);
    }
    filled_.clear();
    return false;
  }

  SharedState& shared_;
  std::vector<Element> filled_;
  size_t at_ = 0;
  bool is_read_ = false;
};

Result<StagePtr> make_zip(const DatasetPtr& dataset, StagePtr first, Runtime* runtime) {
  std::vector<StagePtr> inputs;
  inputs.push_back(std::move(first));
  for (size_t i = 1; i < dataset->def().inputs.size(); ++i) {
    SR_ASSIGN_OR_RETURN(StagePtr input, make_stage(dataset->def().inputs[i], runtime));
    inputs.push_back(std::move(input));
  }
  return std::make_unique<Zip>(dataset, std::move(inputs), runtime);
}

}  // namespace

Result<StagePtr> make_order(const DatasetPtr& dataset, StagePtr input, Runtime* runtime) {
  const std::string& op = dataset->op();
  if (op == "Zip") return make_zip(dataset, std::move(input), runtime);
  if (op == "Concatenate") {
    return std::make_unique<Concatenate>(dataset, std::move(input), runtime);
  }
  if (op == "Cache") return std::make_unique<Cache>(dataset, std::move(input), runtime);
  if (op == "CacheFile") return make_cache_file(dataset, std::move(input), runtime);
  SR_ASSIGN_OR_RETURN(const int64_t number, number_of(*dataset, 0));
  if (op == "Repeat") return std::make_unique<Repeat>(dataset, std::move(input), number, runtime);
  if (op == "Take") {
    return std::make_unique<Take>(dataset, std::move(input), std::max<int64_t>(number, -1),
                                  runtime);
  }
  if (op == "Skip") return std::make_unique<Skip>(dataset, std::move(input), number, runtime);
  if (op == "Prefetch") return make_ahead(dataset, std::move(input), number, runtime);
  if (op == "Shard") {
    SR_ASSIGN_OR_RETURN(const int64_t index, number_of(*dataset, 1));
    if (number < 1 || index < 0 || index >= number) {
      return base::invalid_argument(
          "shard {} of {} does not exist; index must be from 0 to num_shards - 1", index, number);
    }
    return std::make_unique<Shard>(dataset, std::move(input), number, index, runtime);
  }
  if (number < 1) {
    return base::invalid_argument("shuffle: buffer_size is {}; it must be positive", number);
  }
  return std::make_unique<Shuffle>(dataset, std::move(input), number, runtime);
}

}  // namespace sidereal::dataset
