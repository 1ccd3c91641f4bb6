#include "sidereal/exec/saving.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "sidereal/ckpt/checkpoint_reader.h"
#include "sidereal/ckpt/slice.h"
#include "sidereal/tensor/dtype.h"
#include "sidereal/tensor/strings.h"

namespace sidereal::exec {

using ckpt::BlockMemory;
using ckpt::DataWriter;
using ckpt::Entry;
using ckpt::ExtentWriter;
using resources::Snapshot;
using resources::Variable;
using tensor::DType;
using tensor::Shape;
using tensor::Tensor;

namespace {

/// Buffers of a lane that are on their way between it and the disk.
constexpr int kBuffersOfLane = 4;
/// Rows that were copied out for all that is saved: at least this much is allowed, and this part of
/// what is saved.
constexpr int64_t kCopiedBytesMin = int64_t{64} << 20;
constexpr int64_t kCopiedPart = 10;

std::span<const std::byte> as_bytes(const Tensor& value) { return {value.raw(), value.nbytes()}; }

}  // namespace

class SaveWork::Job : public std::enable_shared_from_this<Job> {
 public:
  Job(SaveRequest request, VariableLanes* lanes)
      : request_(std::move(request)),
        lanes_(lanes),
        counts_(resources::PushCounts::here() == nullptr
                    ? nullptr
                    : resources::PushCounts::here()->shared_from_this()) {
    for (SavedTensor& tensor : std::exchange(request_.tensors, {})) {
      items_.emplace_back().of = std::move(tensor);
    }
  }

  /// Has snapshots taken. Thread: of the step.
  void begin() {
    if (lanes_ == nullptr) {
      std::vector<size_t> all;
      for (size_t i = 0; i < items_.size(); ++i) all.push_back(i);
      return take_snapshots(all);
    }
    std::map<int, std::vector<size_t>> of_lane;
    std::vector<size_t> values;
    for (size_t i = 0; i < items_.size(); ++i) {
      const Variable* const variable = items_[i].of.variable.get();
      if (variable == nullptr) {
        values.push_back(i);
      } else {
        of_lane[variable->owner()->lane()].push_back(i);
      }
    }
    take_snapshots(values);
    for (auto& [lane, items] : of_lane) ask_for_snapshots(lane, std::move(items));
  }

  /// Thread: of the step.
  std::optional<Result<std::string>> step() {
    std::vector<std::function<void()>> wanted;
    {
      const std::lock_guard lock(mutex_);
      if (result_.has_value()) return std::move(result_);
      if (!has_begun_ && (missing_ == 0 || !status_.ok())) {
        has_begun_ = true;
        std::thread([self = shared_from_this()] { self->run(); }).detach();
      }
      wanted.swap(wanted_);
    }
    for (const auto& ask : wanted) ask();
    return std::nullopt;
  }

  void cancel() {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = base::cancelled("nobody waits for the checkpoint any more");
    changed_.notify_all();
  }

  [[nodiscard]] std::string progress() const {
    constexpr int64_t kMegabyte = 1'000'000;
    return fmt::format("{} of {} MB", written_.load() / kMegabyte, total_.load() / kMegabyte);
  }

 private:
  struct Item {
    SavedTensor of;
    std::shared_ptr<Snapshot> snapshot;
    resources::Staleness::Pushed pushed;
    std::string strings;  // Encoded, of strings.
    std::unique_ptr<ExtentWriter> rows;
    std::unique_ptr<ExtentWriter> data;
  };
  /// A piece of a snapshot on its way to the file.
  struct Piece {
    explicit Piece(BlockMemory memory) : memory(std::move(memory)) {}

    BlockMemory memory;
    Item* item = nullptr;
    int64_t rows = 0;
    std::vector<int64_t> which;
  };
  /// What was a lane's at the instant of its snapshots. Variables may be given to another lane
  /// meanwhile: only the lane that has the one that is next goes on.
  struct Walk {
    std::vector<size_t> items;
    std::atomic<size_t> at = 0;
  };

  struct Filled {
    Walk* walk = nullptr;
    std::shared_ptr<Piece> piece;  // nullptr: nothing is left.
  };

  void give(Filled filled) {
    const std::lock_guard lock(mutex_);
    filled_.push_back(std::move(filled));
    changed_.notify_all();
  }
  void fail(const Status& status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok()) status_ = status;
    changed_.notify_all();
  }
  [[nodiscard]] Status status() const {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  // --- On lanes.

  void ask_for_snapshots(int lane, std::vector<size_t> items) {
    {
      const std::lock_guard lock(mutex_);
      ++missing_;
    }
    const auto take = [self = shared_from_this(), lane, items = std::move(items)] {
      self->take_on(lane, items);
      {
        const std::lock_guard lock(self->mutex_);
        --self->missing_;
      }
      self->request_.wake();
    };
    if (!lanes_->post(lane, take)) fail(stopping(lane));
  }

  static Status stopping(int lane) {
    return base::unavailable("lane {}, which has a variable to save, is stopping", lane);
  }

  /// Takes those that belong to the lane, all at this instant; others have gone elsewhere.
  void take_on(int lane, const std::vector<size_t>& items) {
    std::vector<size_t> here;
    std::map<int, std::vector<size_t>> elsewhere;
    for (const size_t i : items) {
      const int now = items_[i].of.variable->owner()->lane();
      (now == lane ? here : elsewhere[now]).push_back(i);
    }
    take_snapshots(here);
    for (auto& [other, gone] : elsewhere) ask_for_snapshots(other, std::move(gone));
    if (here.empty()) return;
    const std::lock_guard lock(mutex_);
    Walk& walk = walks_[lane];
    walk.items.insert(walk.items.end(), here.begin(), here.end());
  }

  void take_snapshots(const std::vector<size_t>& items) {
    for (const size_t i : items) {
      Item& item = items_[i];
      if (item.of.variable == nullptr) continue;
      Result<std::shared_ptr<Snapshot>> taken =
          item.of.variable->snapshot(request_.bases, request_.tracks ? request_.cut : 0);
      if (!taken.ok()) return fail(taken.status());
      item.snapshot = *std::move(taken);
      item.pushed = item.of.variable->staleness()->note_cut(request_.cut);
    }
  }

  /// The next item of a walk that must be read piece by piece; nullptr at its end.
  Item* next_item(Walk* walk) {
    for (; walk->at < walk->items.size(); ++walk->at) {
      Item& item = items_[walk->items[walk->at]];
      if (!item.snapshot->whole().defined() && item.snapshot->row_bytes() > 0) return &item;
    }
    return nullptr;
  }

  /// Fills a piece with the next rows of an item; with none at its end. Thread: that of its
  /// variable.
  Status fill(Item* item, Piece* piece) const {
    Snapshot& snapshot = *item->snapshot;
    const int64_t rows =
        std::max<int64_t>(static_cast<int64_t>(request_.piece_bytes) / snapshot.row_bytes(), 1);
    const auto bytes = static_cast<size_t>(rows * snapshot.row_bytes());
    if (piece->memory.size() < bytes) {
      SR_ASSIGN_OR_RETURN(piece->memory, BlockMemory::allocate(bytes));
    }
    if (snapshot.is_increment()) piece->which.resize(static_cast<size_t>(rows));
    piece->item = item;
    SR_ASSIGN_OR_RETURN(
        piece->rows,
        item->of.variable->read_on(&snapshot, rows, piece->memory.data(), piece->which.data()));
    return {};
  }

  /// Has `lane` fill a piece of a walk.
  void fill_on(int lane, Walk* walk, std::shared_ptr<Piece> piece) {
    const auto run = [self = shared_from_this(), lane, walk, piece] {
      while (Item* const item = self->next_item(walk)) {
        const int owner = item->of.variable->owner()->lane();
        if (owner != lane) return self->fill_on(owner, walk, piece);
        const Status filled = self->fill(item, piece.get());
        if (!filled.ok()) return self->fail(filled);
        if (piece->rows > 0) return self->give({walk, piece});
        ++walk->at;
      }
      self->give({walk, nullptr});
    };
    if (!lanes_->post(lane, run)) fail(stopping(lane));
  }

  // --- On the thread that writes.

  void run() {
    Result<std::string> result = write();
    {
      const std::lock_guard lock(mutex_);
      result_ = std::move(result);
    }
    request_.wake();
  }

  Result<std::string> write() {
    SR_RETURN_IF_ERROR(status());
    const std::string directory = sys::directory_of(request_.prefix);
    SR_RETURN_IF_ERROR(request_.disk->make_directories(directory));
    const std::string name =
        ckpt::data_file_name(request_.prefix, request_.shard, request_.shards, request_.cut);
    SR_ASSIGN_OR_RETURN(const std::unique_ptr<DataWriter> file,
                        DataWriter::create(request_.disk, fmt::format("{}/{}", directory, name)));
    for (Item& item : items_) reserve(file.get(), &item);
    total_ = static_cast<int64_t>(file->size());
    begun_ = std::chrono::steady_clock::now();
    for (Item& item : items_) SR_RETURN_IF_ERROR(write_whole(&item));
    SR_RETURN_IF_ERROR(lanes_ == nullptr ? write_shared() : write_of_lanes());
    SR_RETURN_IF_ERROR(status());
    SR_RETURN_IF_ERROR(file->finish());
    ckpt::Index out{.cuts = {request_.cut}, .files = {{name, file->size()}}};
    for (Item& item : items_) {
      SR_ASSIGN_OR_RETURN(Entry entry, entry_of(&item));
      out.entries.push_back(std::move(entry));
    }
    if (counts_ != nullptr) counts_->wrote({.cut = request_.cut, .prefix = request_.prefix});
    return ckpt::encode(out);
  }

  static void reserve(DataWriter* file, Item* item) {
    uint64_t bytes = 0;
    if (item->snapshot == nullptr || item->snapshot->whole().defined()) {
      const Tensor& value = item->snapshot == nullptr ? item->of.value : item->snapshot->whole();
      if (value.dtype() == DType::kString) {
        const bool is_empty = item->snapshot != nullptr && item->snapshot->is_increment();
        if (!is_empty) item->strings = tensor::strings_to_bytes(value);
        bytes = item->strings.size();
      } else {
        bytes = value.nbytes();
      }
    }
    if (item->snapshot != nullptr) {
      const Snapshot& snapshot = *item->snapshot;
      if (snapshot.is_increment()) {
        const uint64_t rows = static_cast<uint64_t>(snapshot.rows()) * sizeof(int64_t);
        item->rows = std::make_unique<ExtentWriter>(file, file->reserve(rows));
      }
      if (snapshot.dtype() != DType::kString) {
        bytes = static_cast<uint64_t>(snapshot.rows() * snapshot.row_bytes());
      }
    }
    item->data = std::make_unique<ExtentWriter>(file, file->reserve(bytes));
  }

  /// Writes what nobody need be asked for.
  Status write_whole(Item* item) {
    SR_RETURN_IF_ERROR(status());
    if (item->snapshot != nullptr && !item->snapshot->whole().defined()) return {};
    const Tensor& value = item->snapshot == nullptr ? item->of.value : item->snapshot->whole();
    if (value.dtype() == DType::kString) {
      return item->data->append(std::as_bytes(std::span(item->strings)));
    }
    if (item->snapshot == nullptr || !item->snapshot->is_increment()) {
      return write(item, as_bytes(value), nullptr);
    }
    Snapshot& snapshot = *item->snapshot;
    std::vector<std::byte> rows(static_cast<size_t>(snapshot.rows() * snapshot.row_bytes()));
    std::vector<int64_t> which(static_cast<size_t>(snapshot.rows()));
    snapshot.read_whole(snapshot.rows(), rows.data(), which.data());
    SR_RETURN_IF_ERROR(item->rows->append(std::as_bytes(std::span(which))));
    return write(item, rows, nullptr);
  }

  Status write(Item* item, std::span<const std::byte> bytes, BlockMemory* memory) {
    SR_RETURN_IF_ERROR(item->data->append(bytes, memory));
    written_ += static_cast<int64_t>(bytes.size());
    return keep_pace();
  }

  Status write_piece(Piece* piece) {
    Item& item = *piece->item;
    const int64_t row_bytes = item.snapshot->row_bytes();
    if (item.snapshot->is_increment()) {
      const std::span which(piece->which.data(), static_cast<size_t>(piece->rows));
      SR_RETURN_IF_ERROR(item.rows->append(std::as_bytes(which)));
    }
    const std::span bytes(piece->memory.data(), static_cast<size_t>(piece->rows * row_bytes));
    SR_RETURN_IF_ERROR(write(&item, bytes, &piece->memory));
    return check_copied();
  }

  /// Waits while more was written than may be by now.
  Status keep_pace() {
    if (request_.bytes_per_second <= 0) return {};
    const auto due = begun_ + std::chrono::nanoseconds(static_cast<int64_t>(
                                  1e9 * static_cast<double>(written_.load()) /
                                  static_cast<double>(request_.bytes_per_second)));
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, due, [&] { return !status_.ok(); });
    return status_;
  }

  /// kResourceExhausted when steps change more than there is memory to keep it apart.
  [[nodiscard]] Status check_copied() const {
    int64_t copied = 0;
    for (const Item& item : items_) {
      if (item.snapshot != nullptr) copied += item.snapshot->copied_bytes();
    }
    const int64_t most = std::max(kCopiedBytesMin, total_.load() / kCopiedPart);
    if (copied <= most) return {};
    return base::resource_exhausted(
        "steps changed {} bytes that were not written yet; {} may be kept apart while {} are "
        "saved: the disk is too slow for what is trained",
        copied, most, total_.load());
  }

  Status write_shared() {
    SR_ASSIGN_OR_RETURN(BlockMemory memory, BlockMemory::allocate(request_.piece_bytes));
    Piece piece(std::move(memory));
    Walk walk;
    for (size_t i = 0; i < items_.size(); ++i) {
      if (items_[i].snapshot != nullptr) walk.items.push_back(i);
    }
    while (Item* const item = next_item(&walk)) {
      SR_RETURN_IF_ERROR(status());
      SR_RETURN_IF_ERROR(fill(item, &piece));
      if (piece.rows == 0) {
        ++walk.at;
      } else {
        SR_RETURN_IF_ERROR(write_piece(&piece));
      }
    }
    return {};
  }

  Status write_of_lanes() {
    std::vector<std::pair<int, Walk*>> walks;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [lane, walk] : walks_) walks.emplace_back(lane, &walk);
    }
    int out = 0;  // Pieces that lanes have.
    for (int i = 0; i < kBuffersOfLane; ++i) {
      for (const auto& [lane, walk] : walks) {
        SR_ASSIGN_OR_RETURN(BlockMemory memory, BlockMemory::allocate(request_.piece_bytes));
        want(lane, walk, std::make_shared<Piece>(std::move(memory)));
        ++out;
      }
    }
    request_.wake();
    while (out > 0) {
      SR_ASSIGN_OR_RETURN(const Filled filled, next_filled());
      if (filled.piece == nullptr) {
        --out;
        continue;
      }
      SR_RETURN_IF_ERROR(write_piece(filled.piece.get()));
      want(filled.piece->item->of.variable->owner()->lane(), filled.walk, filled.piece);
      request_.wake();
    }
    return {};
  }

  /// Has the step ask a lane to fill a piece: threads of others do not talk to lanes, which may be
  /// gone.
  void want(int lane, Walk* walk, std::shared_ptr<Piece> piece) {
    const std::lock_guard lock(mutex_);
    wanted_.emplace_back(
        [self = this, lane, walk, piece = std::move(piece)] { self->fill_on(lane, walk, piece); });
  }

  Result<Filled> next_filled() {
    std::unique_lock lock(mutex_);
    // Its end comes too when the step ends, for whatever reason.
    changed_.wait(lock, [&] { return !status_.ok() || !filled_.empty(); });
    if (!status_.ok()) return status_;
    Filled out = std::move(filled_.front());
    filled_.pop_front();
    return out;
  }

  Result<Entry> entry_of(Item* item) const {
    Entry out{.name = item->of.name};
    const Snapshot* const snapshot = item->snapshot.get();
    const Shape& shape = snapshot == nullptr ? item->of.value.shape() : snapshot->shape();
    out.dtype = snapshot == nullptr ? item->of.value.dtype() : snapshot->dtype();
    out.shape = item->of.shape;
    out.slice = item->of.slice;
    if (!out.shape.has_rank()) {
      out.shape = shape;
      out.slice = ckpt::whole_slice(shape);
    }
    if (!(ckpt::shape_of(out.slice) == shape)) {
      return base::invalid_argument("'{}' is {}; its slice says {} of {}", out.name,
                                    shape.to_string(), ckpt::shape_of(out.slice).to_string(),
                                    out.shape.to_string());
    }
    if (snapshot != nullptr) {
      out.is_increment = snapshot->is_increment();
      out.changes_made = snapshot->changes_made();
      if (counts_ != nullptr) out.pushed = pushed_of(*item);
    }
    if (item->rows != nullptr) {
      SR_ASSIGN_OR_RETURN(out.rows, item->rows->finish());
    }
    SR_ASSIGN_OR_RETURN(out.data, item->data->finish());
    return out;
  }

  [[nodiscard]] Entry::Pushed pushed_of(const Item& item) const {
    Entry::Pushed out = {
        .life = counts_->life(), .pushes = item.pushed.pushes, .rows = item.pushed.rows};
    if (item.pushed.is_table) out.table = resources::table_of(item.of.variable->def().name);
    return out;
  }

  SaveRequest request_;         // Its tensors are the items; the rest does not change.
  VariableLanes* const lanes_;  // For the step's lane, and what it posts.
  const std::shared_ptr<resources::PushCounts> counts_;  // nullptr: nothing does.
  std::vector<Item> items_;
  std::atomic<int64_t> written_ = 0;
  std::atomic<int64_t> total_ = 0;
  std::chrono::steady_clock::time_point begun_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status status_;
  int missing_ = 0;  // Lanes that have not taken their snapshots.
  bool has_begun_ = false;
  std::map<int, Walk> walks_;
  std::vector<std::function<void()>> wanted_;
  std::deque<Filled> filled_;
  std::optional<Result<std::string>> result_;
};

std::vector<uint64_t> cuts_in_place(sys::Disk* disk, const std::string& prefix) {
  Result<ckpt::Index> index = ckpt::read_index(disk, prefix);
  return index.ok() ? std::move(index->cuts) : std::vector<uint64_t>();
}

std::unique_ptr<SaveWork> SaveWork::start(SaveRequest request, VariableLanes* lanes) {
  auto job = std::make_shared<Job>(std::move(request), lanes);
  job->begin();
  return std::unique_ptr<SaveWork>(new SaveWork(std::move(job)));
}

SaveWork::~SaveWork() { job_->cancel(); }

std::optional<Result<std::string>> SaveWork::step() { return job_->step(); }

std::string SaveWork::progress() const { return job_->progress(); }

}  // namespace sidereal::exec
