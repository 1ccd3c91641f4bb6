#include "sidereal/sys/shared_stream.h"

#include <array>
#include <utility>

#include "sidereal/base/check.h"
#include "sidereal/sys/shared_ring.h"

namespace sidereal::sys {
namespace {

constexpr size_t kBellsPerRead = 256;
constexpr int kReadsPerEvent = 4;
constexpr std::byte kBell{0};

}  // namespace

/// Both rings, and what is known of the stream below.
class SharedStream::Ends final : public InMemory, public Bell {
 public:
  Ends(std::unique_ptr<Stream> stream, std::unique_ptr<SharedMemory> shared, bool offered)
      : below(std::move(stream)),
        memory(std::move(shared)),
        writer(*memory, offered ? 0 : 1, this),
        reader(*memory, offered ? 1 : 0, this) {}

  [[nodiscard]] Interest handle_interest(Interest wanted) const override {
    // An end is read once; the system would tell of it for ever.
    return {.readable = input ? !ended : wanted.readable, .writable = !output && wanted.writable};
  }

  void on_handle(Event* event) override {
    if (output) event->writable = false;
    if (!input) return;
    if (event->readable || event->failed) hear();
    event->readable = event->failed = false;
  }

  Event look(Interest wanted) override {
    Event event;
    if (input) {
      if (below->holds_input()) hear();
      event.readable = wanted.readable && (ended || reader.has_bytes());
      event.failed = ended && !why.ok();
    }
    event.writable = output && wanted.writable && writer.has_room();
    return event;
  }

  // A bell would lie behind bytes of the peer that nobody may want to read now.
  [[nodiscard]] bool can_be_woken(Interest wanted) const override {
    return input || !output || !wanted.writable;
  }

  bool close_eyes(Interest wanted) override {
    if (input && below->holds_input()) return false;
    if (input && wanted.readable && (ended || !reader.wait())) return false;
    if (output && wanted.writable && !writer.wait()) {
      reader.stop_waiting();
      return false;
    }
    return true;
  }

  void open_eyes() override {
    reader.stop_waiting();
    writer.stop_waiting();
  }

  // Bells may be lost where there is no room for one more: then others lie there unread. Before
  // the switch a bell would be taken for a byte of a frame: see can_be_woken() of the other side.
  void ring() override {
    if (!output) return;
    const std::array<ConstIoSlice, 1> bell = {ConstIoSlice{&kBell, 1}};
    (void)below->writev(bell);
  }

  /// Takes the bells that have come, and learns whether the peer has ended.
  void hear() {
    std::array<std::byte, kBellsPerRead> bells;
    const std::array<IoSlice, 1> into = {IoSlice{bells.data(), bells.size()}};
    for (int i = 0; i < kReadsPerEvent && !ended; ++i) {
      const Result<IoCount> got = below->readv(into);
      if (!got.ok()) why = got.status();
      ended = !got.ok() || got->end;
      if (ended || got->would_block || (got->bytes < bells.size() && !below->holds_input())) break;
    }
  }

  const std::unique_ptr<Stream> below;
  const std::unique_ptr<SharedMemory> memory;
  RingWriter writer;
  RingReader reader;
  bool input = false;   // switched
  bool output = false;  // switched
  bool ended = false;
  Status why;  // it ended, other than orderly
  bool is_trimmed = true;
};

SharedStream::SharedStream(std::unique_ptr<Stream> below, std::unique_ptr<SharedMemory> memory,
                           bool offered)
    : ends_(std::make_unique<Ends>(std::move(below), std::move(memory), offered)) {}

SharedStream::~SharedStream() = default;

void SharedStream::switch_output() {
  SR_CHECK(!ends_->below->holds_output());
  ends_->output = true;
}

void SharedStream::switch_input() { ends_->input = true; }

bool SharedStream::trim() {
  if (ends_->is_trimmed) return true;
  if (!ends_->writer.is_empty()) return false;
  ends_->memory->release(ends_->writer.data());
  ends_->is_trimmed = true;
  return true;
}

const SharedMemory& SharedStream::memory() const { return *ends_->memory; }
Stream& SharedStream::below() const { return *ends_->below; }
int SharedStream::handle() const { return ends_->below->handle(); }
InMemory* SharedStream::in_memory() const { return ends_.get(); }
Result<bool> SharedStream::connected() { return ends_->below->connected(); }

Result<IoCount> SharedStream::readv(std::span<const IoSlice> into) {
  if (!ends_->input) return ends_->below->readv(into);
  // What was written before the end is there when the end is known.
  const bool ended = ends_->ended;
  SR_ASSIGN_OR_RETURN(const size_t bytes, ends_->reader.read(into));
  if (bytes > 0) return IoCount{.bytes = bytes};
  if (!ended) return IoCount{.would_block = true};
  if (!ends_->why.ok()) return ends_->why;
  return IoCount{.end = true};
}

Result<IoCount> SharedStream::writev(std::span<const ConstIoSlice> from) {
  if (!ends_->output) return ends_->below->writev(from);
  SR_ASSIGN_OR_RETURN(const size_t bytes, ends_->writer.write(from));
  if (bytes > 0) ends_->is_trimmed = false;
  return IoCount{.bytes = bytes, .would_block = bytes == 0};
}

bool SharedStream::holds_input() const { return !ends_->input && ends_->below->holds_input(); }
bool SharedStream::holds_output() const { return !ends_->output && ends_->below->holds_output(); }

}  // namespace sidereal::sys
