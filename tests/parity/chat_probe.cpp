#include "tests/parity/chat_probe.h"

#include <nlohmann/json.hpp>

#include "registry/formats/text/chat_template.h"
#include "registry/language/error.h"

namespace trainrun {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

}  // namespace

json render_templates(const json& request) {
  const ordered_json given = ordered_json::parse(request.at("variables").get<std::string>());
  json rendered = json::array();
  for (const json& source : request.at("templates")) {
    try {
      jinja::Budget budget;
      std::map<std::string, jinja::Value> variables;
      for (const auto& [name, value] : given.items()) variables[name] = jinja::Value::from_json(value, budget);
      const jinja::Rendered made = jinja::Template(source.get<std::string>()).render(variables);
      rendered.push_back({{"text", made.text}, {"marked", made.marked}});
    } catch (const jinja::TemplateError& error) {
      rendered.push_back({{"error", error.what()}});
    }
  }
  return {{"rendered", rendered}};
}

json render_chats(const json& request) {
  const json own = request.value("template", json());
  const ChatTemplate chat_template = open_chat_template(
      request.at("path").get<std::string>(), own.is_null() ? std::nullopt : std::optional(own.get<std::string>()));
  json rendered = json::array();
  for (const ordered_json& chat : ordered_json::parse(request.at("chats").get<std::string>())) {
    const ordered_json& tools = chat.at("tools");
    try {
      const ChatText made = chat_template.render(chat.at("messages"), tools.is_null() ? nullptr : &tools,
                                                 chat.at("add_generation_prompt"));
      rendered.push_back({{"text", made.text}, {"marked", made.answers}});
    } catch (const DataError& error) {
      rendered.push_back({{"error", error.what()}});
    }
  }
  return {{"rendered", rendered}};
}

}  // namespace trainrun
