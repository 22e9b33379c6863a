"""Splits names of tools and parameters into words."""


def words(name: str) -> str:
    """Split a name in camel case or snake case: ``getHTTP2Page_v3`` is "get HTTP2 Page v3".

    Any character but letters and digits separates words. Digits end the word that they follow
    (base64, S3), unless a word begins with them (3d, 2fa). Letters of any alphabet are kept.

    Args:
      name: name of a tool or of a parameter.
    """
    found = [""]
    for place, now in enumerate(name):
        word, before, after = found[-1], found[-1][-1:], name[place + 1 : place + 2]
        if not now.isalnum():
            found.append("")
            continue
        rises = now.isupper() and (before.islower() or before.isdigit())
        ends = now.isupper() and before.isupper() and after.islower()  # the P of HTTPPage
        counted = now.isalpha() and before.isdigit() and not word.isdigit()  # point2point
        if rises or ends or counted:
            found.append("")
        found[-1] += now
    return " ".join(filter(None, found))
