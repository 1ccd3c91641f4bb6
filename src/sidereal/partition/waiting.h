#pragma once

#include <string_view>

namespace sidereal::partition {

/// True for ops that may wait for what other steps or other devices do.
inline bool may_wait(std::string_view op) {
  return op == "QueueEnqueue" || op == "QueueDequeue" || op == "AccumulatorTake" ||
         op == "AccumulatorAwaitStep" || op == "StepBarrierAwait" || op == "IteratorNext" ||
         op == "IteratorNextOrEnd" || op == "IteratorSave" || op == "IteratorRestore" ||
         op == "Recv" || op == "SaveVariables" || op == "SaveTensors" || op == "CommitCheckpoint" ||
         op == "RestoreVariables" || op == "RestoreTensors";
}

}  // namespace sidereal::partition
