// The same work without a network: one thread, one after the other.
#include "sidereal/kernels/thread.h"
#include "table.h"
#include "work.h"

namespace sidereal::bench {

Status drive_in_process(int in, int out) {
  SR_ASSIGN_OR_RETURN(const auto table, LocalTable::create());
  pin_to(0);
  kernels::prepare_thread();
  Ids ids(1);
  Front front;
  const std::vector<float> gradients = make_gradients();
  std::vector<int64_t> rows(kIdsMax);
  std::vector<float> values(kIdsMax * kDim);
  const int32_t ready = 0;
  write_all(out, &ready, sizeof(ready));
  Window window;
  while (read_all(in, &window, sizeof(window))) {
    Stopwatch watch(window);
    bool going = true;
    while (going) {
      const std::span<const int64_t> batch = ids.next(window);
      const auto count = static_cast<size_t>(front.run(batch, rows.data()));
      const std::span<const int64_t> wanted(rows.data(), count);
      SR_RETURN_IF_ERROR(window.op == Op::kPull ? table->gather(wanted, values.data())
                                                : table->apply(wanted, gradients.data()));
      going = watch.count(static_cast<int64_t>(batch.size()), static_cast<int64_t>(count));
    }
    write_all(out, &watch.figures(), sizeof(Figures));
  }
  return {};
}

}  // namespace sidereal::bench
