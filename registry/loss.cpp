#include "registry/loss.h"

#include "registry/metric.h"

namespace trainrun {
namespace {
constexpr const char* kInputsDoc =
    "names of layers and fields of the batch; by default the last layer's output and the data's target";
}  // namespace

void LossCommon::describe(Fields<LossCommon>& f) { f.optional("inputs", &LossCommon::inputs).doc(kInputsDoc); }

void MetricCommon::describe(Fields<MetricCommon>& f) { f.optional("inputs", &MetricCommon::inputs).doc(kInputsDoc); }

}  // namespace trainrun
