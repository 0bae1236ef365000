from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inquiries", "0006_lengths")]

    operations = [
        migrations.AlterModelOptions(
            name="tenantcount", options={"ordering": ("-inside", "-leaking", "-unknown", "tenant")}
        ),
        *(
            migrations.AddField(model_name="requestlog", name=name, field=models.BigIntegerField(null=True))
            for name in ("leaking", "unknown", "longer")
        ),
        *(
            migrations.AddField(model_name="tenantcount", name=name, field=models.BigIntegerField(null=True))
            for name in ("leaking", "unknown")
        ),
        migrations.AddField(
            model_name="requesthit",
            name="standing",
            field=models.CharField(default="danger zone", max_length=20),
        ),
    ]
