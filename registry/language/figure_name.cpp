#include "registry/language/figure_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

namespace trainrun {
namespace {

/// Words in whose midst a capital begins no other word.
constexpr auto kWholeWords = std::to_array<std::string_view>({"IoU", "SimPO", "CoSENT"});

/// What figures were called before these were whole words, and are called since.
constexpr auto kRenamed = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"mean_io_u", "mean_iou"}, {"sim_po_loss", "simpo_loss"}, {"co_sent_loss", "cosent_loss"}});

/// How long the whole word is that begins at `place`; 0: none does.
size_t whole_word_at(std::string_view type, size_t place) {
  for (const std::string_view word : kWholeWords) {
    const size_t end = place + word.size();
    const bool goes_on = end < type.size() && std::islower(static_cast<unsigned char>(type[end])) != 0;
    if (type.substr(place).starts_with(word) && !goes_on) return word.size();
  }
  return 0;
}

}  // namespace

std::string figure_name(const std::string& type, const std::optional<std::string>& name) {
  if (name) return *name;
  const auto upper = [&](size_t i) { return i < type.size() && std::isupper(static_cast<unsigned char>(type[i])); };
  const auto lower = [&](size_t i) { return i < type.size() && std::islower(static_cast<unsigned char>(type[i])); };
  std::string snake;
  size_t word_end = 0;  // of a whole word
  for (size_t i = 0; i < type.size(); ++i) {
    const size_t whole = i < word_end ? 0 : whole_word_at(type, i);
    const bool is_begun = i > 0 && upper(i) && (!upper(i - 1) || lower(i + 1));
    const bool starts_word = i >= word_end && (whole > 0 ? i > 0 && !upper(i - 1) : is_begun);
    if (whole > 0) word_end = i + whole;
    if (starts_word) snake += '_';
    snake += static_cast<char>(std::tolower(static_cast<unsigned char>(type[i])));
  }
  return snake;
}

std::string present_figure_name(const std::string& name) {
  for (const auto& [before, since] : kRenamed) {
    const size_t place = name.find(before);
    if (place == std::string::npos || (place > 0 && name[place - 1] != '/')) continue;
    const size_t end = place + before.size();
    if (end < name.size() && name[end] != '/' && name[end] != '_') continue;  // "_2": the second one
    return name.substr(0, place) + std::string(since) + name.substr(end);
  }
  return name;
}

}  // namespace trainrun
