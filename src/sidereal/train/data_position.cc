#include "sidereal/train/data_position.h"

#include <algorithm>

namespace sidereal::train {

DataSchedule::DataSchedule(const DataPosition& from, const std::vector<int>& lanes_of_workers)
    : first_lane_({0}) {
  for (const int lanes : lanes_of_workers) {
    first_lane_.push_back(first_lane_.back() + static_cast<size_t>(lanes));
  }
  lanes_.resize(first_lane_.back());
  for (Lane& lane : lanes_) lane.next_epoch = from.next_epoch;
  for (const BegunPass& pass : from.begun) {
    lanes_[static_cast<size_t>(pass.part) % lanes_.size()].begun.push_back(pass);
  }
  for (Lane& lane : lanes_) {
    std::ranges::stable_sort(lane.begun, {}, &BegunPass::epoch);
  }
}

int64_t DataSchedule::first_epoch(int64_t end) const {
  int64_t first = end;
  for (const Lane& lane : lanes_) {
    first = std::min(first, lane.begun.empty() ? lane.next_epoch : lane.begun.front().epoch);
  }
  return first;
}

/// From this epoch on, all lanes of a worker have whole epochs left.
int64_t DataSchedule::whole_from(size_t worker, int64_t end) const {
  int64_t from = 0;
  for (size_t i = first_lane_[worker]; i < first_lane_[worker + 1]; ++i) {
    from = std::max(from, lanes_[i].next_epoch);
  }
  return std::min(from, end);
}

/// What is left to a lane of epochs below `below`.
std::vector<BegunPass> DataSchedule::passes_of(size_t lane, int64_t below) const {
  std::vector<BegunPass> out = lanes_[lane].begun;
  for (int64_t epoch = lanes_[lane].next_epoch; epoch < below; ++epoch) {
    out.push_back({.epoch = epoch,
                   .part = static_cast<int64_t>(lane),
                   .parts = static_cast<int64_t>(lanes_.size())});
  }
  return out;
}

int64_t DataSchedule::epoch_of(size_t worker, int64_t end, size_t lane, int64_t pass) const {
  const int64_t whole = whole_from(worker, end);
  const std::vector<BegunPass> begun = passes_of(first_lane_[worker] + lane, whole);
  const auto before = static_cast<int64_t>(begun.size());
  return pass < before ? begun[static_cast<size_t>(pass)].epoch : whole + pass - before;
}

int64_t DataSchedule::begun_epoch(size_t worker, int64_t end,
                                  const std::vector<task::LoopPosition>& positions) const {
  int64_t first = end;
  for (size_t i = 0; i < first_lane_[worker + 1] - first_lane_[worker]; ++i) {
    first = std::min(first, epoch_of(worker, end, i, i < positions.size() ? positions[i].pass : 0));
  }
  return first;
}

void DataSchedule::tell(size_t worker, int64_t end, task::LoopOptions* loop) const {
  const int64_t whole = whole_from(worker, end);
  loop->started.clear();
  for (size_t i = first_lane_[worker]; i < first_lane_[worker + 1]; ++i) {
    for (const BegunPass& pass : passes_of(i, whole)) {
      loop->started.push_back({.lane = static_cast<int64_t>(i - first_lane_[worker]),
                               .epoch = pass.epoch,
                               .part_index = pass.part,
                               .part_count = pass.parts,
                               .rows_done = pass.rows_done});
    }
  }
  loop->first_epoch = whole;
  loop->epochs = end - whole;
  // A loop must have something to read, if it be nothing.
  if (loop->epochs == 0 && loop->started.empty()) {
    loop->started.push_back({.epoch = 0, .rows_done = int64_t{1} << 40});
  }
}

void DataSchedule::took(size_t worker, int64_t end,
                        const std::vector<task::LoopPosition>& positions) {
  const int64_t whole = whole_from(worker, end);
  for (size_t i = first_lane_[worker]; i < first_lane_[worker + 1]; ++i) {
    Lane& lane = lanes_[i];
    const size_t place = i - first_lane_[worker];
    const task::LoopPosition at =
        place < positions.size() ? positions[place] : task::LoopPosition();
    if (at.is_end) {
      lane.begun.clear();
      lane.next_epoch = std::max(lane.next_epoch, end);
      continue;
    }
    if (at.steps == 0) continue;
    std::vector<BegunPass> passes = passes_of(i, whole);
    lane.next_epoch = std::max(lane.next_epoch, whole);
    const auto begun = static_cast<int64_t>(passes.size());
    if (at.pass >= begun) {
      lane.next_epoch = whole + at.pass - begun + 1;
      passes = {{.epoch = lane.next_epoch - 1,
                 .part = static_cast<int64_t>(i),
                 .parts = static_cast<int64_t>(lanes_.size())}};
    } else {
      passes.erase(passes.begin(), passes.begin() + at.pass);
    }
    passes.front().rows_done = at.rows;
    lane.begun = std::move(passes);
  }
}

void DataSchedule::leave_out(int64_t end) {
  for (Lane& lane : lanes_) {
    std::erase_if(lane.begun, [end](const BegunPass& pass) { return pass.epoch < end; });
    lane.next_epoch = std::max(lane.next_epoch, end);
  }
}

DataPosition DataSchedule::position() const {
  DataPosition out;
  for (const Lane& lane : lanes_) out.next_epoch = std::max(out.next_epoch, lane.next_epoch);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    for (const BegunPass& pass : passes_of(i, out.next_epoch)) out.begun.push_back(pass);
  }
  return out;
}

}  // namespace sidereal::train
