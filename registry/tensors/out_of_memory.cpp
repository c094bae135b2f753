#include "registry/tensors/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <new>
#include <string_view>

namespace trainrun {
namespace {

/// LibTorch's allocator of main memory throws no type of its own.
constexpr std::string_view kAllocatorSays = "can't allocate memory: you tried to allocate ";

/// " (3200 bytes were asked for)" where the message says how many, else "".
std::string amount(std::string_view message) {
  const size_t start = message.find(kAllocatorSays);
  if (start == std::string_view::npos) return "";
  const std::string_view rest = message.substr(start + kAllocatorSays.size());
  const auto is_digit = [](unsigned char c) { return std::isdigit(c) != 0; };
  const auto end = std::find_if_not(rest.begin(), rest.end(), is_digit);
  return " (" + std::string(rest.begin(), end) + " bytes were asked for)";
}

}  // namespace

bool is_out_of_memory(const std::exception& error) {
  return dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const c10::OutOfMemoryError*>(&error) ||
         std::string_view(error.what()).find(kAllocatorSays) != std::string_view::npos;
}

void rethrow_out_of_memory(const std::exception& error, const std::string& what) {
  if (!is_out_of_memory(error)) return;
  throw OutOfMemory(what + ": this machine has too little memory for it" + amount(error.what()));
}

}  // namespace trainrun
