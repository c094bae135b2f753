#include "registry/text_data/template_on_demand.h"

#include <ctime>
#include <filesystem>

#include "registry/language/error.h"

namespace trainrun {

void TemplateOptions::check(Checker& checker) const {
  for (const auto& entry : template_variables.entries) {
    for (const char* taken : {"messages", "tools", "documents", "add_generation_prompt"}) {
      if (entry.first == taken) checker.fail("template_variables", "'" + entry.first + "' comes from the data");
    }
  }
}

std::shared_ptr<const ChatTemplate> TemplateOnDemand::get() {
  if (template_) return template_;
  const auto& variables = options_.template_variables.entries;
  template_ = std::make_shared<const ChatTemplate>(
      open_chat_template(tokenizer_, options_.chat_template, ChatVariables(variables.begin(), variables.end())));
  return template_;
}

/// The day, where the template writes it into its texts.
std::string TemplateOnDemand::day_in_texts() {
  try {
    if (!get()->reads_clock()) return "";
  } catch (const DataError&) {
    return "";  // whoever needs a template is told when the conversations are read
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return std::to_string(local.tm_year) + " " + std::to_string(local.tm_yday);
}

void TemplateOnDemand::add_to(TokenCacheKey& key) {
  const std::string given = options_.chat_template.value_or("");
  key.add(given);
  std::error_code no_name;  // the text of a template can be too long for a file's name
  if (std::filesystem::is_regular_file(given, no_name)) key.add_file(given);
  key.add(static_cast<int64_t>(options_.template_variables.entries.size()));
  for (const auto& [name, value] : options_.template_variables.entries) {
    key.add(name).add(static_cast<int64_t>(value.index()));
    key.add(std::visit([](const auto& one) { return nlohmann::json(one).dump(); }, value));
  }
  key.add(day_in_texts());
}

}  // namespace trainrun
