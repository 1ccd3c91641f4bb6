#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sidereal/base/log.h"
#include "sidereal/data/byte_source.h"
#include "sidereal/data/record_reader.h"
#include "sidereal/data/record_writer.h"
#include "sidereal/dataset/internal/stage.h"

/// A cache in a file: records as of TFRecord, first what the elements are, then each element, then
/// how many there were. It is written under another name, which is locked meanwhile, and gets its
/// name when it is whole.
namespace sidereal::dataset {
namespace {

using base::data_loss;

constexpr uint32_t kMagic = 0x31636473;  // "sdc1"
constexpr uint32_t kSpecsBytesMax = 1 << 20;

/// What a record has.
enum class Kind : uint8_t { kElement, kEnd };

/// The elements of a file. Bytes from anyone: kDataLoss names the file.
/// Thread: core-local.
class CacheReader {
 public:
  static Result<std::unique_ptr<CacheReader>> open(const std::string& path,
                                                   const std::vector<ComponentSpec>& specs) {
    SR_ASSIGN_OR_RETURN(auto records, data::RecordReader::open(path));
    std::unique_ptr<CacheReader> made(new CacheReader(path, std::move(records)));
    const Status begun = made->begin(specs);
    if (begun.ok()) return made;
    return begun.code() == StatusCode::kDataLoss ? made->damaged(begun) : begun;
  }

  Result<bool> next(Element* out, const std::vector<ComponentSpec>& specs) {
    auto some = read(out, specs);
    if (some.ok() || some.status().code() != StatusCode::kDataLoss) return some;
    return damaged(some.status());
  }

 private:
  CacheReader(std::string path, std::unique_ptr<data::RecordReader> records)
      : path_(std::move(path)), records_(std::move(records)) {}

  [[nodiscard]] Status damaged(const Status& why) const {
    return data_loss("{}: the cache is damaged; delete it to have it made anew: {}", path_,
                     base::message_of(why));
  }

  Status begin(const std::vector<ComponentSpec>& specs) {
    SR_ASSIGN_OR_RETURN(const bool some, records_->next(&record_));
    if (!some) return data_loss("it is empty");
    base::ByteReader in(record_);
    uint32_t magic = 0;
    std::string of;
    SR_RETURN_IF_ERROR(in.get(&magic));
    if (magic != kMagic) return data_loss("it is none of this release");
    SR_RETURN_IF_ERROR(in.get_string(&of, kSpecsBytesMax));
    if (of == to_string(specs)) return {};
    return base::failed_precondition(
        "{}: the cache has elements {}, and the dataset {}: give another name, or delete it", path_,
        of, to_string(specs));
  }

  Result<bool> read(Element* out, const std::vector<ComponentSpec>& specs) {
    SR_ASSIGN_OR_RETURN(const bool some, records_->next(&record_));
    if (!some) return data_loss("it was cut off after {} elements", count_);
    PositionReader in(record_);
    uint8_t kind = 0;
    SR_RETURN_IF_ERROR(in.get(&kind));
    if (kind == static_cast<uint8_t>(Kind::kElement)) {
      SR_RETURN_IF_ERROR(in.get(out, specs));
      ++count_;
      return in.remaining() == 0 ? Result<bool>(true) : data_loss("an element has bytes too many");
    }
    uint64_t count = 0;
    SR_RETURN_IF_ERROR(in.get(&count));
    SR_ASSIGN_OR_RETURN(const bool more, records_->next(&record_));
    if (kind == static_cast<uint8_t>(Kind::kEnd) && count == count_ && !more) return false;
    return data_loss("it ends after {} of {} elements", count_, count);
  }

  std::string path_;
  std::unique_ptr<data::RecordReader> records_;
  std::string record_;
  uint64_t count_ = 0;
};

/// Gives what its input gives, and writes it down; once that was done to the end, gives what was
/// written.
class CacheFile final : public Stage {
 public:
  CacheFile(const DatasetPtr& dataset, StagePtr input, std::string path, Runtime* runtime)
      : Stage(dataset, runtime), input_(std::move(input)), path_(std::move(path)) {}
  ~CacheFile() override {
    if (writer_ == nullptr || count_ == 0) return;
    base::log_warning("cache given up file=\"{}\" elements={} why=\"not read to the end\"", path_,
                      count_);
  }

  Result<bool> next(Element* out) override {
    out->clear();
    SR_RETURN_IF_ERROR(check_stopped());
    if (is_over_) return false;
    if (!is_begun_) SR_RETURN_IF_ERROR(begin());
    Result<bool> some = reader_ != nullptr ? read(out) : pass(out);
    if (some.ok() && *some) ++count_;
    is_over_ = some.ok() && !*some;
    return some;
  }
  Status save(PositionWriter* out) override {
    const bool is_read = reader_ != nullptr;
    out->put(is_begun_);
    out->put(is_over_);
    out->put(is_read);
    out->put(count_);
    return is_read || is_over_ ? Status() : input_->save(out);
  }
  /// What was not in the file yet goes on from the input; the next iteration makes the file.
  Status restore(PositionReader* in) override {
    bool is_begun = false;
    bool is_over = false;
    bool is_read = false;
    int64_t count = 0;
    SR_RETURN_IF_ERROR(in->get(&is_begun));
    SR_RETURN_IF_ERROR(in->get(&is_over));
    SR_RETURN_IF_ERROR(in->get(&is_read));
    SR_RETURN_IF_ERROR(in->get_number(&count));
    if (is_read && !is_over) {
      SR_ASSIGN_OR_RETURN(const int64_t skipped, skip(count));
      if (skipped < count) return data_loss("the cache has fewer elements than its position");
      return {};
    }
    is_begun_ = is_begun;
    is_over_ = is_over;
    count_ = count;
    return is_over ? Status() : input_->restore(in);
  }

 private:
  [[nodiscard]] bool is_there() const {
    return data::file_bytes(path_).status().code() != StatusCode::kNotFound;
  }

  Status begin() {
    if (!is_there()) {
      auto opened = data::RecordWriter::open(path_);
      if (opened.status().code() == StatusCode::kAlreadyExists) {
        return base::already_exists(
            "{}: another iterator writes this cache now: read the dataset to its end once before "
            "others do, or give each a file of its own",
            path_);
      }
      SR_ASSIGN_OR_RETURN(writer_, std::move(opened));
      if (writer_ != nullptr) {
        base::ByteWriter head;
        head.put(kMagic);
        head.put_string(to_string(specs()));
        SR_RETURN_IF_ERROR(write(head.bytes()));
      }
    }
    if (writer_ == nullptr) {
      SR_ASSIGN_OR_RETURN(reader_, CacheReader::open(path_, specs()));
    }
    is_begun_ = true;
    return {};
  }

  Result<bool> read(Element* out) {
    auto some = reader_->next(out, specs());
    // Nothing is known of what follows.
    if (!some.ok()) is_over_ = true;
    return some;
  }

  /// After an error of the input its elements are not all there: they are not kept.
  Result<bool> pass(Element* out) {
    auto some = input_->next(out);
    if (!some.ok()) writer_ = nullptr;
    if (!some.ok() || writer_ == nullptr) return some;
    PositionWriter record;
    if (*some) {
      record.put(static_cast<uint8_t>(Kind::kElement));
      record.put(*out);
    } else {
      record.put(static_cast<uint8_t>(Kind::kEnd));
      record.put(static_cast<uint64_t>(count_));
    }
    SR_RETURN_IF_ERROR(write(record.take()));
    if (*some) return some;
    const Status finished = writer_->finish();
    writer_ = nullptr;
    SR_RETURN_IF_ERROR(finished);
    return some;
  }

  Status write(std::string_view bytes) {
    Status written = writer_->add(bytes);
    if (!written.ok()) writer_ = nullptr;
    return written;
  }

  StagePtr input_;
  const std::string path_;
  bool is_begun_ = false;
  bool is_over_ = false;
  int64_t count_ = 0;                           ///< Elements given so far.
  std::unique_ptr<CacheReader> reader_;         ///< Of the file, when it is there.
  std::unique_ptr<data::RecordWriter> writer_;  ///< Else, as long as all can be written.
};

}  // namespace

Result<StagePtr> make_cache_file(const DatasetPtr& dataset, StagePtr input, Runtime* runtime) {
  const Tensor& name = dataset->def().parameters[0].value;
  std::string path(name.data<const std::string_view>()[0]);
  if (path.empty() || path.find('\0') != std::string::npos) {
    return base::invalid_argument("cache: the filename is {}",
                                  path.empty() ? "empty" : "no name of a file");
  }
  return std::make_unique<CacheFile>(dataset, std::move(input), std::move(path), runtime);
}

}  // namespace sidereal::dataset
