"""One menu for each language, and a selector that leads to the same page in the other.

The section of `nav` that is called 中文 is the menu of the Chinese pages. Where a page is not
translated, the selector leads to the first page of the other language.
"""

from mkdocs.structure.nav import Navigation, Section

CHINESE, FIRST = "中文", {"en": "index.html", "zh": "index.zh.html"}
NAMES = {"en": "English", "zh": "中文"}
IN_CHINESE = {"Dark": "深色", "Light": "浅色", "Permanent link": "本节的链接"}
"""What the theme takes from `mkdocs.yml`, or from an extension, in one language alone."""
menus: dict[str, Navigation] = {}


def on_nav(nav: Navigation, config, files) -> Navigation:
    """Take the Chinese menu out of the tree."""
    (section,) = [each for each in nav.items if each.title == CHINESE]
    for item in section.children:
        item.parent = None
    english = [each for each in nav.items if each is not section]
    for language, items in (("en", english), ("zh", section.children)):
        pages = [page for item in items for page in _pages(item)]
        for page, before, after in zip(pages, [None, *pages], [*pages[1:], None], strict=False):
            page.previous_page, page.next_page = before, after
        menus[language] = Navigation(items, pages)
        menus[language].homepage = pages[0]
    nav.items = english
    return nav


def _pages(item) -> list:
    if isinstance(item, Section):
        return [page for child in item.children for page in _pages(child)]
    return [item] if getattr(item, "is_page", False) else []


def on_page_context(context, page, config, nav):
    """Give a page the menu and the words of its language, and the other language's address."""
    addresses = {each.file.src_uri: each.url for menu in menus.values() for each in menu.pages}
    name = page.file.src_uri
    english = name.removesuffix(".zh.md").removesuffix(".md")
    language = "zh" if name.endswith(".zh.md") else "en"
    same = {"en": f"{english}.md", "zh": f"{english}.zh.md"}
    config.extra["alternate"] = [
        {"name": NAMES[each], "lang": each, "link": addresses.get(same[each], FIRST[each])}
        for each in NAMES
    ]
    config.theme["language"] = language
    context["nav"] = menus[language]
    return context


def on_post_page(output, page, config):
    """Name the buttons of a Chinese page in Chinese."""
    if not page.file.src_uri.endswith(".zh.md"):
        return output
    for english, chinese in IN_CHINESE.items():
        for attribute in ("title", "aria-label"):
            output = output.replace(f'{attribute}="{english}"', f'{attribute}="{chinese}"')
    return output
