#include "sidereal/exec/needs.h"

#include <algorithm>

namespace sidereal::exec {

using program::Instruction;
using program::InstructionKind;

namespace {

void make_unique(std::vector<int32_t>* values) {
  std::sort(values->begin(), values->end());
  values->erase(std::unique(values->begin(), values->end()), values->end());
}

}  // namespace

Needs::Lists Needs::joined(const std::vector<std::vector<int32_t>>& lists) {
  Lists out;
  for (const std::vector<int32_t>& list : lists) {
    out.first.push_back(static_cast<int32_t>(out.all.size()));
    out.all.insert(out.all.end(), list.begin(), list.end());
  }
  out.first.push_back(static_cast<int32_t>(out.all.size()));
  return out;
}

Needs::Needs(const program::Program& program) : uses_(program.slots.size(), 0) {
  const std::vector<Instruction>& all = program.instructions;
  std::vector<std::vector<int32_t>> before(all.size());
  std::vector<std::vector<int32_t>> slots(all.size());
  std::vector<int32_t> writer(program.slots.size(), -1);
  std::vector<int32_t> start(program.calls.size(), -1);
  for (size_t i = 0; i < all.size(); ++i) {
    const Instruction& one = all[i];
    before[i] = one.after;
    const auto read = [&](const std::vector<int32_t>& list) {
      for (const int32_t slot : list) {
        slots[i].push_back(slot);
        if (writer[slot] >= 0) before[i].push_back(writer[slot]);
      }
    };
    const auto write = [&](const std::vector<int32_t>& list) {
      for (const int32_t slot : list) {
        slots[i].push_back(slot);
        writer[slot] = static_cast<int32_t>(i);
      }
    };
    read(one.inputs);
    if (one.call >= 0) calls_.push_back(static_cast<int32_t>(i));
    if (one.op == "Recv") {
      // Without the attribute there is no such kernel; two of one edge are a program's own fault.
      if (const auto edge = ir::get_attr<int64_t>(one.attrs, "edge"); edge.ok())
        recvs_.emplace(*edge, static_cast<int32_t>(i));
    }
    if (one.kind == InstructionKind::kCallStart) {
      read(program.calls[one.call].feeds);
      start[one.call] = static_cast<int32_t>(i);
    } else if (one.kind == InstructionKind::kCallWait) {
      const program::CallSpec& call = program.calls[one.call];
      // What is sent may be on its way out until the answer is there.
      read(call.feeds);
      before[i].push_back(start[one.call]);
      write(call.fetches);
    }
    write(one.outputs);
    if (one.kind != InstructionKind::kCallWait) ++started_;
    make_unique(&before[i]);
    make_unique(&slots[i]);
    for (const int32_t slot : slots[i]) ++uses_[slot];
  }
  for (const int32_t slot : program.fetches) ++uses_[slot];
  // An asynchronous push is done when it was sent, and its memory stays until the end of the step.
  for (const program::CallSpec& call : program.calls) {
    if (!call.async_push) continue;
    for (const int32_t slot : call.feeds) ++uses_[slot];
  }
  count(program, &before);
  slots_ = joined(slots);
}

/// Finds late reads, and counts what the others need.
void Needs::count(const program::Program& program, std::vector<std::vector<int32_t>>* before) {
  const size_t size = before->size();
  std::vector<bool> is_read(size, false);
  for (const std::vector<int32_t>& sources : *before) {
    for (const int32_t source : sources) is_read[source] = true;
  }
  std::vector<std::vector<int32_t>> readers(size);
  std::vector<std::vector<int32_t>> late_reads(size);
  missing_.assign(size, 0);
  for (size_t i = 0; i < size; ++i) {
    std::vector<int32_t> sources;
    for (const int32_t source : (*before)[i]) {
      if (missing_[source] != kLate) {
        sources.push_back(source);
        continue;
      }
      late_reads[i].push_back(source);
      sources.insert(sources.end(), (*before)[source].begin(), (*before)[source].end());
    }
    if (is_read[i] && late_reads[i].empty() && program.instructions[i].op == "VariableRead") {
      missing_[i] = kLate;
      continue;
    }
    make_unique(&sources);
    missing_[i] = static_cast<int32_t>(sources.size());
    for (const int32_t source : sources) readers[source].push_back(static_cast<int32_t>(i));
  }
  readers_ = joined(readers);
  late_reads_ = joined(late_reads);
}

}  // namespace sidereal::exec
