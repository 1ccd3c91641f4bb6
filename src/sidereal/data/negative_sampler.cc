#include "sidereal/data/negative_sampler.h"

#include <algorithm>

namespace sidereal::data {

namespace {

constexpr size_t kRecentMax = size_t{1} << 14;
/// Draws of the row's own value, after which another one is looked for.
constexpr int kDraws = 16;

}  // namespace

void NegativeSampler::see(const Row& row) {
  random_ = Random(counter_random(key_, rows_++));
  if (how_.sampler == "popularity") {
    const int64_t id = row.ids[slot_.slot];
    if (recent_.size() < kRecentMax) {
      recent_.push_back(id);
    } else {
      recent_[oldest_] = id;
      oldest_ = (oldest_ + 1) % kRecentMax;
    }
  }
  left_ = row.label > 0 ? how_.count : 0;
  if (left_ > 0) positive_ = row;
}

bool NegativeSampler::next(Row* row) {
  if (left_ == 0) return false;
  --left_;
  int64_t id = 0;
  if (!draw(positive_.ids[slot_.slot], &id)) {
    left_ = 0;
    return false;
  }
  *row = positive_;
  row->ids[slot_.slot] = id;
  row->label = 0;
  std::fill(row->dense.end() - static_cast<std::ptrdiff_t>(labels_), row->dense.end(), 0.0F);
  return true;
}

bool NegativeSampler::draw(int64_t own, int64_t* id) {
  return how_.sampler == "popularity" ? draw_recent(own, id) : draw_token(own, id);
}

/// One of the others: which one it is counts past the row's own.
bool NegativeSampler::draw_token(int64_t own, int64_t* id) {
  const bool is_token = own >= slot_.first && own < slot_.first + slot_.size;
  const int64_t others = slot_.size - (is_token ? 1 : 0);
  if (others <= 0) return false;
  *id = slot_.first + static_cast<int64_t>(random_.below(static_cast<uint64_t>(others)));
  if (is_token && *id >= own) ++*id;
  return true;
}

bool NegativeSampler::draw_recent(int64_t own, int64_t* id) {
  size_t at = 0;
  for (int i = 0; i < kDraws; ++i) {
    at = random_.below(recent_.size());
    *id = recent_[at];
    if (*id != own) return true;
  }
  // Nearly all are the row's own: the next one that is another.
  for (size_t i = 1; i < recent_.size(); ++i) {
    *id = recent_[(at + i) % recent_.size()];
    if (*id != own) return true;
  }
  return false;
}

}  // namespace sidereal::data
