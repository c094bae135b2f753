#include "registry/tensors/component_error.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <new>
#include <string_view>

namespace trainrun {
namespace {

/// Where the reason begins in the text of an error. TorchScript writes it last: after its own sentence, and the lines of
/// the model's source with the failed call marked.
size_t begin_of_reason(const std::string& text) {
  constexpr std::string_view kMark = "<--- HERE\n";
  constexpr std::string_view kKind = "RuntimeError: ";
  const size_t mark = text.starts_with("The following operation failed in the TorchScript interpreter")
                          ? text.rfind(kMark)
                          : std::string::npos;
  if (mark == std::string::npos) return 0;
  const size_t reason = mark + kMark.size();
  return text.compare(reason, kKind.size(), kKind) == 0 ? reason + kKind.size() : reason;
}

}  // namespace

std::string error_text(const std::exception& error) {
  if (dynamic_cast<const Error*>(&error)) return error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory";
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = torch_error ? torch_error->what_without_backtrace() : error.what();
  const size_t first = text.find_first_not_of(" \n", begin_of_reason(text));
  if (first == std::string::npos) return "an error without a message";
  // Then follow 2,000 characters of all backends and their source files.
  constexpr std::string_view kBackends = ". This could be because the operator doesn't exist for this backend";
  return text.substr(first, std::min(text.find('\n', first), text.find(kBackends, first)) - first);
}

std::string error_details(const std::exception& error) {
  std::string text = error.what();
  try {
    std::rethrow_if_nested(error);
  } catch (const std::exception& cause) {
    text += "\ncaused by: " + error_details(cause);
  }
  return text;
}

std::string sizes_text(const std::vector<at::Tensor>& tensors) {
  std::vector<std::string> texts;
  for (const at::Tensor& tensor : tensors) texts.push_back(tensor.defined() ? at::str(tensor.sizes()) : "nothing");
  return join(texts, " and ");
}

ComponentError::ComponentError(std::string who, std::string what)
    : Error(who + what), who_(std::move(who)), what_(std::move(what)) {}

ComponentError::ComponentError(const ComponentName& name, const std::string& inputs, const std::exception& error)
    : ComponentError(Problem{name.place, name.path, name.type + " failed"}.to_string(),
                     (inputs.empty() ? "" : " on " + inputs) + ": " + error_text(error)) {}

void throw_component_error(const ComponentName& name, const std::vector<at::Tensor>& inputs,
                           const std::exception& error) {
  if (dynamic_cast<const ComponentError*>(&error)) throw;  // the innermost layer's name
  std::throw_with_nested(ComponentError(name, sizes_text(inputs), error));
}

namespace {

thread_local BackwardTrace* current_trace = nullptr;

}  // namespace

BackwardTrace::BackwardTrace() { current_trace = this; }

BackwardTrace::~BackwardTrace() { current_trace = nullptr; }

BackwardTrace* BackwardTrace::current() { return current_trace; }

void BackwardTrace::watch(const ComponentName& layer, const std::vector<at::Tensor>& outputs) {
  for (const at::Tensor& output : outputs) {
    const auto is_same = [&](const at::Tensor& other) { return other.is_same(output); };
    if (!output.requires_grad() || std::any_of(watched_.begin(), watched_.end(), is_same)) continue;
    watched_.push_back(output);
    output.register_hook([last = last_, layer](const at::Tensor&) { *last = layer; });
  }
}

}  // namespace trainrun
