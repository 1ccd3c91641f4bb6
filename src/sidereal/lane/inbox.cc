#include "sidereal/lane/inbox.h"

#include <bit>
#include <utility>

namespace sidereal::lane {

// A cell at position p is free for the producer that owns p when its turn is p, and full for the
// consumer when its turn is p + 1. Emptying it gives it to position p + slots.

Inbox::Inbox(size_t slots)
    : mask_(std::bit_ceil(slots < 2 ? size_t{2} : slots) - 1),
      cells_(std::make_unique<Cell[]>(mask_ + 1)) {
  for (uint64_t i = 0; i <= mask_; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
}

bool Inbox::push(base::Function<void()>& fn) {
  uint64_t at = tail_.load(std::memory_order_relaxed);
  for (;;) {
    if ((at & kClosed) != 0) return false;
    Cell& cell = cells_[at & mask_];
    // Acquire pairs with pop()'s release: the cell's old function has been moved out.
    const uint64_t turn = cell.turn.load(std::memory_order_acquire);
    if (turn == at) {
      // The closed bit lives in the same word, so no position is taken after close().
      if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_seq_cst,
                                      std::memory_order_relaxed)) {
        cell.fn = std::move(fn);
        cell.turn.store(at + 1, std::memory_order_release);  // pairs with pop()'s acquire
        return true;
      }
    } else if (static_cast<int64_t>(turn - at) < 0) {
      return false;
    } else {
      at = tail_.load(std::memory_order_relaxed);
    }
  }
}

void Inbox::close() { tail_.fetch_or(kClosed, std::memory_order_seq_cst); }

bool Inbox::pop(base::Function<void()>* fn) {
  const uint64_t at = head_.load(std::memory_order_relaxed);
  Cell& cell = cells_[at & mask_];
  if (cell.turn.load(std::memory_order_acquire) != at + 1) return false;
  *fn = std::move(cell.fn);
  cell.fn = nullptr;
  cell.turn.store(at + mask_ + 1, std::memory_order_release);
  head_.store(at + 1, std::memory_order_relaxed);
  return true;
}

bool Inbox::empty() const {
  return (tail_.load(std::memory_order_seq_cst) & ~kClosed) ==
         head_.load(std::memory_order_relaxed);
}

}  // namespace sidereal::lane
