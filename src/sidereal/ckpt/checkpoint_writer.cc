#include "sidereal/ckpt/checkpoint_writer.h"

#include <utility>
#include <vector>

#include "sidereal/base/check.h"
#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/data_file.h"
#include "sidereal/ckpt/index.h"
#include "sidereal/sys/posix/posix.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::ckpt {
namespace {

using tensor::DType;
using tensor::Tensor;

class CheckpointWriter final : public TensorWriter {
 public:
  static Result<std::unique_ptr<TensorWriter>> create(std::shared_ptr<sys::Disk> disk,
                                                      const std::string& prefix) {
    const uint64_t unique = sys::posix::create_random()->next();
    const std::string name = data_file_name(prefix, 0, 1, unique);
    SR_ASSIGN_OR_RETURN(
        auto data, DataWriter::create(disk, fmt::format("{}/{}", sys::directory_of(prefix), name)));
    return std::unique_ptr<TensorWriter>(
        new CheckpointWriter(std::move(disk), prefix, name, unique, std::move(data)));
  }

  Status add(const StoredTensor& tensor, const Slice& slice, const Tensor& piece) override {
    if (missing_ == 0) begin(tensor, slice);
    SR_CHECK(entry_.name == tensor.name && entry_.slice == slice && piece.dtype() == tensor.dtype &&
             piece.num_elements() <= missing_);
    missing_ -= piece.num_elements();
    if (tensor.dtype == DType::kString) {
      for (const std::string_view text : piece.data<const std::string_view>()) strings_.add(text);
    } else {
      SR_RETURN_IF_ERROR(extent_->append({piece.raw(), piece.nbytes()}));
    }
    return missing_ == 0 ? end() : Status();
  }

  Status finish() override {
    SR_CHECK(missing_ == 0);
    index_.files = {{name_, data_->size()}};
    SR_ASSIGN_OR_RETURN(const Index whole, merge({&index_, 1}, ""));
    SR_RETURN_IF_ERROR(data_->finish());
    return write_index(disk_.get(), prefix_, whole, unique_);
  }

 private:
  CheckpointWriter(std::shared_ptr<sys::Disk> disk, std::string prefix, std::string name,
                   uint64_t unique, std::unique_ptr<DataWriter> data)
      : disk_(std::move(disk)),
        prefix_(std::move(prefix)),
        name_(std::move(name)),
        unique_(unique),
        data_(std::move(data)) {
    index_.cuts = {unique_};
  }

  void begin(const StoredTensor& tensor, const Slice& slice) {
    entry_ = {.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .slice = slice};
    missing_ = shape_of(slice).num_elements();
    strings_ = {};
    if (tensor.dtype == DType::kString) return;
    const uint64_t bytes = static_cast<uint64_t>(missing_) * tensor::size_of(tensor.dtype);
    extent_ = std::make_unique<ExtentWriter>(data_.get(), data_->reserve(bytes));
  }

  Status end() {
    if (entry_.dtype == DType::kString) {
      const std::string bytes =
          tensor::strings_to_bytes(std::move(strings_).finish(shape_of(entry_.slice)));
      extent_ = std::make_unique<ExtentWriter>(data_.get(), data_->reserve(bytes.size()));
      SR_RETURN_IF_ERROR(extent_->append(std::as_bytes(std::span(bytes))));
    }
    SR_ASSIGN_OR_RETURN(entry_.data, extent_->finish());
    index_.entries.push_back(entry_);
    return {};
  }

  const std::shared_ptr<sys::Disk> disk_;
  const std::string prefix_;
  const std::string name_;  // Of the data file.
  const uint64_t unique_;
  std::unique_ptr<DataWriter> data_;
  Index index_;
  // The slice that is being written.
  Entry entry_;
  int64_t missing_ = 0;  // Elements.
  std::unique_ptr<ExtentWriter> extent_;
  tensor::StringsBuilder strings_;
};

}  // namespace

Result<std::unique_ptr<TensorWriter>> create_checkpoint(std::shared_ptr<sys::Disk> disk,
                                                        const std::string& prefix) {
  return CheckpointWriter::create(std::move(disk), prefix);
}

}  // namespace sidereal::ckpt
