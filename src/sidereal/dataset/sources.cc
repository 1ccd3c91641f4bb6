#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "sidereal/data/data_spec.h"
#include "sidereal/data/line_reader.h"
#include "sidereal/data/reader.h"
#include "sidereal/data/record_reader.h"
#include "sidereal/dataset/internal/stage.h"
#include "sidereal/tensor/dispatch.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::dataset {
namespace {

using tensor::Shape;

Tensor string_scalar(std::string_view text) {
  tensor::StringsBuilder builder;
  builder.add(text);
  return std::move(builder).finish({});
}

/// A source whose elements have numbers.
class Numbered : public Stage {
 public:
  Numbered(DatasetPtr dataset, Runtime* runtime, int64_t count)
      : Stage(std::move(dataset), runtime), count_(count) {}

  Result<bool> next(Element* out) final {
    out->clear();
    if (at_ >= count_) return false;
    make(at_++, out);
    return true;
  }
  Result<int64_t> skip(int64_t count) final {
    const int64_t skipped = std::min(count, count_ - at_);
    at_ += skipped;
    return skipped;
  }
  Status save(PositionWriter* out) final {
    out->put(at_);
    return {};
  }
  Status restore(PositionReader* in) final { return in->get_number(&at_, count_); }

 protected:
  virtual void make(int64_t index, Element* out) = 0;

 private:
  int64_t count_;
  int64_t at_ = 0;
};

class Whole final : public Numbered {
 public:
  Whole(DatasetPtr dataset, Runtime* runtime) : Numbered(std::move(dataset), runtime, 1) {}

 private:
  void make(int64_t /*index*/, Element* out) override {
    for (const Parameter& p : dataset().def().parameters) out->push_back({p.value, nullptr});
  }
};

class Slices final : public Numbered {
 public:
  Slices(const DatasetPtr& dataset, Runtime* runtime)
      : Numbered(dataset, runtime, dataset->cardinality()) {
    for (const Parameter& p : dataset->def().parameters) {
      shapes_.emplace_back(p.value.shape().dims().subspan(1));
    }
  }

 private:
  void make(int64_t index, Element* out) override {
    out->reserve(shapes_.size());
    for (size_t i = 0; i < shapes_.size(); ++i) {
      const Tensor& value = dataset().def().parameters[i].value;
      const auto bytes =
          static_cast<size_t>(shapes_[i].num_elements()) * tensor::size_of(value.dtype());
      const auto begin = static_cast<size_t>(value.raw() - value.buffer()->data());
      out->push_back({Tensor(value.dtype(), shapes_[i], value.buffer(),
                             begin + bytes * static_cast<size_t>(index)),
                      nullptr});
    }
  }

  std::vector<Shape> shapes_;
};

class Range final : public Numbered {
 public:
  Range(const DatasetPtr& dataset, Runtime* runtime, int64_t start, int64_t step)
      : Numbered(dataset, runtime, dataset->cardinality()),
        start_(static_cast<uint64_t>(start)),
        step_(static_cast<uint64_t>(step)) {}

 private:
  void make(int64_t index, Element* out) override {
    const auto value = static_cast<int64_t>(start_ + step_ * static_cast<uint64_t>(index));
    Tensor made = Tensor::empty(specs()[0].spec.dtype, {});
    tensor::visit_dtype<tensor::NumericTypes>(made.dtype(), [&]<class T>() {
      if constexpr (std::is_arithmetic_v<T>) {
        made.data<T>()[0] = static_cast<T>(value);
      } else {
        made.data<T>()[0] = T(static_cast<float>(value));
      }
    });
    out->push_back({std::move(made), nullptr});
  }

  uint64_t start_;  // Unsigned: what is above the last number may overflow.
  uint64_t step_;
};

class ListItems final : public Numbered {
 public:
  ListItems(const DatasetPtr& dataset, Runtime* runtime)
      : Numbered(dataset, runtime, dataset->cardinality()) {}

 private:
  void make(int64_t index, Element* out) override {
    out->push_back({(*list_of(dataset()))[static_cast<size_t>(index)], nullptr});
  }
};

/// Rows of text files.
struct Lines {
  static auto open(const std::string& path, const std::atomic<bool>* stop) {
    return data::LineReader::open(path, false, stop);
  }
  static Result<bool> next(data::LineReader* reader, std::string* /*memory*/,
                           std::string_view* out) {
    return reader->next_line(out);
  }
};

struct Records {
  static auto open(const std::string& path, const std::atomic<bool>* stop) {
    return data::RecordReader::open(path, stop);
  }
  static Result<bool> next(data::RecordReader* reader, std::string* memory, std::string_view* out) {
    SR_ASSIGN_OR_RETURN(const bool some, reader->next(memory));
    *out = *memory;
    return some;
  }
};

/// Strings from files, one file after another.
template <class Format>
class Files final : public Stage {
 public:
  Files(const DatasetPtr& dataset, Runtime* runtime) : Stage(dataset, runtime) {
    for (const std::string_view file :
         dataset->def().parameters[0].value.data<const std::string_view>()) {
      files_.emplace_back(file);
    }
  }

  Result<bool> next(Element* out) override {
    out->clear();
    std::string_view text;
    SR_ASSIGN_OR_RETURN(const bool some, advance(&text));
    if (some) out->push_back({string_scalar(text), nullptr});
    return some;
  }
  Result<int64_t> skip(int64_t count) override {
    std::string_view text;
    for (int64_t i = 0; i < count; ++i) {
      SR_ASSIGN_OR_RETURN(const bool some, advance(&text));
      if (!some) return i;
    }
    return count;
  }
  Status save(PositionWriter* out) override {
    out->put(file_);
    out->put(read_);
    return {};
  }
  Status restore(PositionReader* in) override {
    int64_t read = 0;
    SR_RETURN_IF_ERROR(in->get_number(&file_, static_cast<int64_t>(files_.size())));
    SR_RETURN_IF_ERROR(in->get_number(&read));
    if (read == 0) return {};
    SR_ASSIGN_OR_RETURN(const int64_t skipped, skip(read));
    if (skipped == read && read_ == read) return {};
    return base::data_loss("the files have fewer rows than when the position was saved");
  }

 private:
  Result<bool> advance(std::string_view* text) {
    for (;;) {
      SR_RETURN_IF_ERROR(check_stopped());
      if (reader_ == nullptr) {
        if (file_ >= static_cast<int64_t>(files_.size())) return false;
        auto opened = Format::open(files_[static_cast<size_t>(file_)], &runtime().stopped());
        if (!opened.ok()) {
          ++file_;  // The next call goes on with the next file.
          return opened.status();
        }
        reader_ = std::move(*opened);
        read_ = 0;
      }
      const Result<bool> some = Format::next(reader_.get(), &memory_, text);
      if (some.ok() && *some) {
        ++read_;
        return true;
      }
      reader_ = nullptr;
      read_ = 0;
      ++file_;
      SR_RETURN_IF_ERROR(some.status());
    }
  }

  using Reader = typename decltype(Format::open("", nullptr))::value_type;
  std::vector<std::string> files_;
  int64_t file_ = 0;  // Number of the open file, or of the next one.
  int64_t read_ = 0;  // Rows of it.
  Reader reader_;
  std::string memory_;
};

/// What can only be read again from its beginning: its position is how much was read.
class ReadAgain : public Stage {
 public:
  using Stage::Stage;

 protected:
  void save_read(PositionWriter* out) const {
    out->put(read_);
    out->put(ended_);
  }
  /// `fewer`: what is wrong when there is less than that.
  Status restore_read(PositionReader* in, const char* fewer) {
    int64_t read = 0;
    bool ended = false;
    SR_RETURN_IF_ERROR(in->get_number(&read));
    SR_RETURN_IF_ERROR(in->get(&ended));
    SR_ASSIGN_OR_RETURN(const int64_t skipped, skip(read));
    ended_ = ended;
    if (skipped == read) return {};
    return base::data_loss("{} than when the position was saved", fewer);
  }

  int64_t read_ = 0;
  bool ended_ = false;
};

/// Batches of a reader of click logs and arrays.
class Rows final : public ReadAgain {
 public:
  Rows(const DatasetPtr& dataset, Runtime* runtime, data::DataSpec spec)
      : ReadAgain(dataset, runtime), spec_(std::move(spec)) {
    const ir::AttrMap& attrs = dataset->def().attrs;
    options_.batch_size = ir::attr_or<int64_t>(attrs, "batch_size", 1024);
    options_.drop_partial = ir::attr_or(attrs, "drop_remainder", false);
    options_.part.count = ir::attr_or<int64_t>(attrs, "num_shards", 1);
    options_.part.index = ir::attr_or<int64_t>(attrs, "index", 0);
    options_.stop = &runtime->stopped();
    options_.epoch = static_cast<int64_t>(new_iteration() & INT32_MAX);
    columns_ = ir::attr_or<std::vector<std::string>>(attrs, "columns", {});
  }

  Result<bool> next(Element* out) override {
    out->clear();
    if (ended_) return false;
    if (reader_ == nullptr) {
      SR_ASSIGN_OR_RETURN(reader_, data::Reader::open(spec_, options_));
    }
    Result<bool> some = reader_->next(&batch_);
    ended_ = !some.ok() || !*some;  // A reader is of no use after an error.
    if (ended_) return some;
    ++read_;
    for (const std::string& column : columns_) out->push_back({tensor_of(column), nullptr});
    const Status fits = check_element(*out, specs());
    if (fits.ok()) return true;
    return base::with_context(fits, "columns " + columns_.front() + ", ...");
  }
  Status save(PositionWriter* out) override {
    save_iterations(out);
    out->put(options_.epoch);
    save_read(out);
    return {};
  }
  Status restore(PositionReader* in) override {
    SR_RETURN_IF_ERROR(restore_iterations(in));
    SR_RETURN_IF_ERROR(in->get_number(&options_.epoch));
    return restore_read(in, "the files have fewer rows");
  }

 private:
  Tensor tensor_of(const std::string& column) {
    if (column == "label") return std::move(batch_.label);
    if (column == "dense") return std::move(batch_.dense);
    if (column == "ids") return std::move(batch_.ids);
    if (column == "weights") return std::move(batch_.weights);
    if (column == "sample_weight") return std::move(batch_.sample_weight);
    if (column == "truth") return std::move(batch_.truth);
    const Tensor* found = batch_.find(column);
    return found == nullptr ? Tensor() : *found;
  }

  data::DataSpec spec_;
  data::ReadOptions options_;
  std::vector<std::string> columns_;
  std::unique_ptr<data::Reader> reader_;
  data::Batch batch_;
};

class Generator final : public ReadAgain {
 public:
  using ReadAgain::ReadAgain;

  Result<bool> next(Element* out) override {
    out->clear();
    if (ended_) return false;
    if (source_ == nullptr) {
      const auto number = ir::attr_or<int64_t>(dataset().def().attrs, "number", 0);
      if (!runtime().options().generators) {
        return base::failed_precondition("{}", dataset().local_reason());
      }
      SR_ASSIGN_OR_RETURN(source_, runtime().options().generators(number));
    }
    Result<bool> some = source_->next(out);
    ended_ = !some.ok() || !*some;  // A generator that has raised gives nothing any more.
    if (ended_) return some;
    ++read_;
    SR_RETURN_IF_ERROR(base::with_context(check_element(*out, specs()), "the generator"));
    return true;
  }
  Status save(PositionWriter* out) override {
    save_read(out);
    return {};
  }
  Status restore(PositionReader* in) override {
    return restore_read(in, "the generator gives fewer elements");
  }

 private:
  std::unique_ptr<ElementSource> source_;
};

}  // namespace

Result<StagePtr> make_source(const DatasetPtr& dataset, Runtime* runtime) {
  const std::string& op = dataset->op();
  if (op == "Tensors") return std::make_unique<Whole>(dataset, runtime);
  if (op == "TensorSlices") return std::make_unique<Slices>(dataset, runtime);
  if (op == "Argument") return std::make_unique<ListItems>(dataset, runtime);
  if (op == "TextLines") return std::make_unique<Files<Lines>>(dataset, runtime);
  if (op == "Records") return std::make_unique<Files<Records>>(dataset, runtime);
  if (op == "Generator") return std::make_unique<Generator>(dataset, runtime);
  if (op == "Range") {
    SR_ASSIGN_OR_RETURN(const int64_t start, number_of(*dataset, 0));
    SR_ASSIGN_OR_RETURN(const int64_t step, number_of(*dataset, 2));
    if (step == 0) return base::invalid_argument("range: step is 0");
    return std::make_unique<Range>(dataset, runtime, start, step);
  }
  SR_ASSIGN_OR_RETURN(const auto text, ir::get_attr<std::string>(dataset->def().attrs, "spec"));
  SR_ASSIGN_OR_RETURN(data::DataSpec spec, data::spec_from_json(text));
  return std::make_unique<Rows>(dataset, runtime, std::move(spec));
}

}  // namespace sidereal::dataset
